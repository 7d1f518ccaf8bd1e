"""Limits of the queue and of the disk, and purging, over the remote API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest
from tests.rapi.page.browsing import delay, ended, shell
from tests.rapi.served import Served

from ganger.rapi import limits
from ganger.rapi.declarations import Call
from ganger.storage.access import rapi_settings
from ganger.storage.access.rapi_users import User
from ganger.transport.client.purges import PurgedJobs

pytestmark = pytest.mark.slow

PATH = "/2/limits"


@pytest.fixture(name="limited")
def daemon_whose_limits_are_put_back(served: Served) -> Iterator[Served]:
    found = served.get(PATH)
    yield served
    given = {name: found[name] for name in limits.NewLimits.__struct_fields__}
    assert served.done("PUT", PATH, given) == found


def test_those_that_are_given_are_changed_and_the_others_stay(limited: Served) -> None:
    before = limited.get(PATH, user="reader")
    given = {"running": 3, "keep_seconds": 86_400, "output_job_bytes": 5_000_000}
    found = limited.done("PUT", PATH, given)
    assert found == {**before, **given}
    with limited.client() as client:
        stored = client.limits()
    assert (stored.running_jobs_max, stored.disk.keep_seconds) == (3, 86_400.0)
    assert limited.done("PUT", PATH, {"keep_seconds": 0, "running": None}) == {
        **found,
        "keep_seconds": 0,
    }


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"running": 0}, "`int` &gt;= 1 - at `$.running`"),
        ({"output_job_bytes": 0}, "at `$.output_job_bytes`"),
        ({"keep_seconds": -1}, "at `$.keep_seconds`"),
        ({"keep_bytes": 10**30}, "keep_bytes"),
        ({"keep_bytes": "1G"}, "at `$.keep_bytes`"),
        ({"slots": 3}, "unknown field `slots`"),
        ([], "Expected a JSON object"),
    ],
)
def test_a_malformed_limit_is_refused_by_its_name(
    limited: Served, given: Any, problem: str
) -> None:
    before = limited.get(PATH)
    assert problem in limited.refused(400, "PUT", PATH, given)
    assert limited.get(PATH) == before


def test_ended_jobs_are_purged_by_ids_by_age_and_by_size(served: Served) -> None:
    small = ended(served, shell("true"))
    large = ended(served, shell("head -c 200000 /dev/urandom | base64"))
    runs = served.done("POST", "/2/jobs", {"ops": [delay(600.0)]})
    would = served.done("POST", "/2/purge", {"larger_than": 100_000, "dry_run": True})
    assert [job["id"] for job in would["jobs"]] == [large]
    assert (would["dry_run"], would["count"]) == (True, 1)
    assert would["freed_bytes"] == would["jobs"][0]["bytes"] > 100_000
    done = served.done("POST", "/2/purge", {"ids": [large, runs]})
    assert [job["id"] for job in done["jobs"]] == [large]
    [left] = done["left_out"]
    assert left["id"] == runs
    assert str(runs) in left["why"]
    assert served.get(f"/2/jobs/{large}")["status"] is None
    assert served.get(f"/2/jobs/{small}")["status"] == "success"
    assert served.done("POST", "/2/purge", {"ids": [small], "older_than": 3600})["count"] == 0
    done = served.done("POST", "/2/purge", {"older_than": -1})
    assert small in [job["id"] for job in done["jobs"]]
    served.request("DELETE", f"/2/jobs/{runs}?kill=1")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "purge: give ids, older_than or larger_than"),
        ({"ids": ["x"]}, "at `$.ids[0]`"),
        ({"ids": [0]}, "id"),
        ({"older_than": "7d"}, "at `$.older_than`"),
        ({"larger_than": -1}, "at `$.larger_than`"),
        ({"id": 3}, "unknown field `id`"),
    ],
)
def test_a_purge_of_nothing_or_of_nonsense_is_refused(
    served: Served, given: Any, problem: str
) -> None:
    assert problem in served.refused(400, "POST", "/2/purge", given)


@pytest.mark.parametrize("user", ["reader", "tagger"])
def test_who_may_not_is_told_who_grants_it(served: Served, user: str) -> None:
    for method, path, body in (("PUT", PATH, {"running": 2}), ("POST", "/2/purge", {"ids": [1]})):
        answer = served.request(method, path, body, user=user)
        assert answer.status == 403
        command = f"ganger rapi user change {user} --role admin"
        assert answer.body["message"].endswith(command)


def test_an_answer_names_only_the_first_of_very_many_jobs() -> None:
    class Client:
        async def purge(self, *_: Any, **__: Any) -> PurgedJobs:
            most = rapi_settings.PURGED_SHOWN_MAX
            return PurgedJobs(dict.fromkeys(range(1, most + 8), 2), {0: "why"})

    user = User("ann", options=frozenset({"admin"}))
    call = Call(client=cast("Any", Client()), user=user, body=limits.Purge(older_than=1.0))
    found = asyncio.run(limits.purge(call))
    assert (found.count, found.freed_bytes) == (10_007, 20_014)
    assert len(found.jobs) == rapi_settings.PURGED_SHOWN_MAX
    assert msgspec.to_builtins(found.left_out) == [{"id": 0, "why": "why"}]
