"""A job's process takes everything that comes with its hand-over."""

from __future__ import annotations

from ganger.actors.job import process
from ganger.actors.job.daemon_link import DaemonLink
from ganger.actors.processes import channels
from ganger.transport import frames, messages
from ganger.transport.links.link import Received

GO = messages.JobGo(body=b"{}", spares=[], secrets={}, queue="/q", socket="/s")


def test_what_comes_right_behind_the_hand_over_is_heard_as_well() -> None:
    ours, theirs = channels.pair()
    link, daemon = DaemonLink(channels.Channel(ours)), channels.Channel(theirs)
    canceled = messages.CancelRequested(token=1)
    try:
        for message in (messages.GateChanged(), GO, messages.GateChanged(), canceled):
            daemon.send(frames.encode(message))
        assert process._wait_for_go(link) == GO
        # It comes from no descriptor any more, so a wait without a limit must not wait.
        assert link.wait({}, None) == []
        daemon.send(frames.encode(canceled, 3))
        heard = [(messages.GateChanged(), 0), (canceled, 0), (canceled, 3)]
        assert link.receive() == [Received(message, number) for message, number in heard]
        assert link.receive() == []
    finally:
        link.close()
        daemon.close()
