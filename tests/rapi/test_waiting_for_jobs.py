"""Waiting for a change of a job: what is asked of the daemon, and what the client gets."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ganger.rapi import jobs
from ganger.rapi.declarations import Call
from ganger.rapi.problems import HttpError
from ganger.storage import errors
from ganger.storage.access import rapi_settings
from ganger.storage.access.rapi_users import User
from ganger.storage.jobs.job_views import JobChange

ENTRY = [2, [1, 0], "message", "x"]
CHANGE = JobChange(values=["running"], log=[ENTRY], is_final=False)


class Client:
    """Notes what it is asked for, and answers with a change or an error."""

    def __init__(self, outcome: JobChange | errors.GangerError) -> None:
        self._outcome = outcome
        self.asked: list[tuple[Any, ...]] = []

    async def await_change(
        self, job_id: int, fields: list[str], values: Any, *, log_serial: int | None, seconds: float
    ) -> JobChange:
        self.asked.append((job_id, fields, values, log_serial, seconds))
        if isinstance(self._outcome, errors.GangerError):
            raise self._outcome
        return self._outcome


def wait(client: Client, body: dict[str, Any], job_id: str = "7") -> Any:
    call = Call(
        client=cast("Any", client),
        user=User("u"),
        path={"job_id": job_id},
        body=body,
    )
    return asyncio.run(jobs.wait_for_change(call))


def test_the_daemon_is_asked_to_answer_when_the_job_has_changed() -> None:
    client = Client(CHANGE)
    body = {"fields": ["status"], "previous_job_info": ["queued"], "previous_log_serial": 1}
    assert wait(client, body) == {"job_info": ["running"], "log_entries": [ENTRY]}
    assert client.asked == [(7, ["status"], ["queued"], 1, 10.0)]
    assert rapi_settings.WAIT_SECONDS == 10.0


def test_a_client_may_know_nothing() -> None:
    client = Client(CHANGE)
    wait(client, {"fields": ["status", "ops"], "previous_job_info": None})
    wait(client, {"fields": [], "previous_log_serial": None})
    assert client.asked == [(7, ["status", "ops"], None, None, 10.0), (7, [], None, None, 10.0)]


@pytest.mark.parametrize("error", [errors.UnknownJobError, errors.ArchivedJobError])
def test_an_archived_or_unknown_job_cannot_be_waited_for(error: type[errors.GangerError]) -> None:
    with pytest.raises(HttpError) as caught:
        wait(Client(error("there is no live job 7")), {"fields": ["status"]})
    assert (caught.value.code, caught.value.text) == (404, "Can't load job file")


def test_an_id_that_no_job_can_have_is_not_asked_for() -> None:
    client = Client(CHANGE)
    with pytest.raises(HttpError, match="Can't load job file"):
        wait(client, {"fields": ["status"]}, "9" * 30)
    assert client.asked == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"fields": "status"},
        {"fields": [1]},
        {"fields": ["status"], "previous_job_info": "queued"},
        {"fields": ["status"], "previous_log_serial": "1"},
    ],
)
def test_a_malformed_body_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(HttpError) as caught:
        wait(Client(CHANGE), body)
    assert caught.value.code == 400
