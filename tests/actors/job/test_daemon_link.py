"""How a job's process finds a successor of its daemon."""

from __future__ import annotations

from unittest import mock

import pytest

from ganger.actors.job import daemon_link
from ganger.actors.processes import channels
from ganger.transport import frames, messages

ATTACH = messages.AttachJob(job_id=5, lock_file="/l/job_000005_1", process_id=7)


def test_a_successor_is_asked_until_it_answers_the_newest_attachment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dealer = mock.Mock()
    dealer.receive.return_value = None
    monkeypatch.setattr("ganger.transport.zmq.dealer.Dealer", lambda _: dealer)
    ours, theirs = channels.pair()
    link = daemon_link.Link(channels.Channel(ours))
    link.use_socket("/run/socket", ATTACH)
    theirs.close()
    for seconds in (daemon_link.ATTACH_SECONDS, 0.0, daemon_link.ATTACH_SECONDS):
        monkeypatch.setattr(daemon_link, "ATTACH_SECONDS", seconds)
        assert link.receive() == []
    asked = [frames.decode(sent.args[0], messages.JobMessage) for sent in dealer.send.mock_calls]
    assert [one.message for one in asked] == [ATTACH] * 2
    for attachment, is_up in zip(asked, (False, True), strict=True):
        answer = frames.encode(messages.Done(), attachment.number)
        dealer.receive.side_effect = [answer, None]
        link.receive()
        assert link.is_up == link.has_changed == is_up
