"""Waiting for a change of a job: when it ends, and with what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from ganger import JobStatus
from ganger.rapi import jobs
from ganger.rapi.declarations import Call
from ganger.rapi.feed import Feed
from ganger.rapi.metrics import JobTimes
from ganger.rapi.problems import HttpError
from ganger.rapi.timeline import Timeline
from ganger.storage import errors, rapi_settings
from ganger.storage.job_views import JobInfo, LogLine, StatusChange
from ganger.storage.query_views import QueryAnswer
from ganger.storage.rapi_users import User

INFO = JobInfo(id=7, status=JobStatus.RUNNING, summary="EXEC(true)", priority=0)
CHANGE = StatusChange(job_id=7, status=JobStatus.RUNNING, previous=None, job=INFO)


State = tuple[Any, ...]
"""The status of a job, its end, whether it is archived, and its log."""


class Client:
    """Answers queries with one state after the other, and has one watch."""

    def __init__(self, *states: State, parts: list[Any] | None = None) -> None:
        self._states = list(states)
        self._parts = parts
        self.queries = 0
        self.watch_seconds = 0.0
        self.has_closed = False

    async def query(self, what: str, fields: list[str], wanted: object) -> QueryAnswer:
        """Values, then end, archived and log."""
        assert (what, wanted) == ("job", ["==", "id", 7])
        self.queries += 1
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        assert len(fields) == len(state)
        return QueryAnswer(fields=[], data=[[(0, value) for value in state]])

    async def watch(self, job_id: int, *, timeout: float, pause: float) -> AsyncIterator[Any]:  # noqa: ASYNC109 - as the client's
        """The parts; then no news until the deadline."""
        assert job_id == 7
        assert pause > 0
        self.watch_seconds = timeout
        try:
            for part in self._parts or ():
                yield part
            raise errors.DeadlineError
        finally:
            self.has_closed = True


def log_line(serial: int) -> LogLine:
    return LogLine(job_id=7, op_index=0, serial=serial, time=1.0, kind="message", text="x")


def entry(serial: int) -> list[Any]:
    return [serial, [1, 0], "message", "x"]


def wait(client: Client, before: list[Any] | None, serial: int | None = None) -> Any:
    body = {"fields": ["status"], "previous_job_info": before, "previous_log_serial": serial}
    call = Call(
        client=cast("Any", client),
        user=User("u"),
        path={"job_id": "7"},
        body=body,
        feed=Feed("a"),
        times=JobTimes(),
        timeline=Timeline(),
        listing=cast("Any", None),
        bodies=cast("Any", None),
    )
    return asyncio.run(jobs.wait_for_change(call))


def test_what_the_client_does_not_know_is_told_at_once() -> None:
    client = Client(("running", None, False, [[]]))
    assert wait(client, None) == {"job_info": ["running"], "log_entries": []}
    assert wait(client, ["queued"]) == {"job_info": ["running"], "log_entries": []}
    assert client.watch_seconds == 0


def test_an_ended_job_is_told_at_once() -> None:
    client = Client(("success", [5, 0], False, [[entry(1)], [entry(2)]]))
    assert wait(client, ["success"], 1) == {"job_info": ["success"], "log_entries": [entry(2)]}
    assert client.watch_seconds == 0


def test_without_a_change_the_state_is_told_after_some_seconds() -> None:
    client = Client(("running", None, False, [[entry(1)]]), parts=[CHANGE, None])
    assert wait(client, ["running"], 1) == {"job_info": ["running"], "log_entries": []}
    assert client.watch_seconds == rapi_settings.WAIT_SECONDS == 10.0
    assert client.has_closed


def test_a_change_of_the_status_ends_waiting() -> None:
    same: State = ("running", None, False, [[]])
    changed: State = ("success", [5, 0], False, [[]])
    client = Client(same, same, changed, parts=[CHANGE, CHANGE, CHANGE])
    assert wait(client, ["running"]) == {"job_info": ["success"], "log_entries": []}
    assert client.has_closed


def test_a_new_log_entry_ends_waiting_and_known_ones_are_passed_over() -> None:
    same = ("running", None, False, [[entry(1)]])
    more = ("running", None, False, [[entry(1), entry(2)]])
    client = Client(same, more, parts=[log_line(1), log_line(2)])
    assert wait(client, ["running"], 1) == {"job_info": ["running"], "log_entries": [entry(2)]}
    assert client.queries == 2


def test_other_values_are_looked_at_in_every_pause() -> None:
    same: State = ("queued", None, False, [[]])
    other: State = ("waiting", None, False, [[]])
    client = Client(same, other, parts=[None])
    assert wait(client, ["queued"]) == {"job_info": ["waiting"], "log_entries": []}


@pytest.mark.parametrize("archived", [True, None])
def test_an_archived_or_unknown_job_cannot_be_waited_for(archived: object) -> None:
    client = Client((None, None, archived, None))
    with pytest.raises(HttpError) as caught:
        wait(client, None)
    assert (caught.value.code, caught.value.text) == (404, "Can't load job file")
