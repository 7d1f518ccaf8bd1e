"""Waiting for a change of a job, with both clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.transport.client.fake_daemon import FakeDaemon

from ganger import Client
from ganger.storage import errors
from ganger.transport import messages

OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0}


def test_waiting_for_a_change_gives_values_and_log(daemon: FakeDaemon, client: Client) -> None:
    job_id = client.submit(OP)
    daemon.store.logs[job_id].append((1, (5, 6), "message", "hello"))
    change = client.await_change(job_id, ["status", "opstatus"], ["queued", ["queued"]])
    assert (change.values, change.is_final) == (["queued", "queued"], False)
    [[serial, _, kind, text]] = change.log
    assert (serial, text, kind) == (1, "hello", "message")
    client.cancel(job_id)
    change = client.await_change(job_id, ["status"], change.values, log_serial=serial)
    assert (change.values, change.log, change.is_final) == (["canceled"], [], True)
    with pytest.raises(errors.UnknownJobError):
        client.await_change(77, ["status"])


def test_waiting_for_a_change_does_not_run_into_the_usual_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def call(
        _: object,
        message: messages.AwaitJobChange,
        timeout: float,
        *,
        is_lasting: bool,
    ) -> messages.JobAwaited:
        limits.append((message.seconds, timeout, is_lasting))
        return messages.JobAwaited(values=b"[]", log=b"[]", is_final=False)

    monkeypatch.setattr("ganger.transport.client.caller.Caller.call", call)
    with Client(tmp_path, timeout=5.0) as client:
        client.await_change(1, [], seconds=40.0)
        client.await_change(1, [], seconds=40.0, timeout=1.0)
        for wrong in ("status", [1]):
            with pytest.raises(errors.BadRequestError, match="fields"):
                client.await_change(1, cast("Any", wrong))
    assert limits == [(40.0, 45.0, True), (40.0, 1.0, True)]
