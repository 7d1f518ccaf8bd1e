"""Recorded queries of Ganeti 3.0, asked of the components over what Ganeti left on disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.actors.locks.lock_stage import Locks
from tests.actors.runtime.stage import Asker, Stage, Staged

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.queue.job_queue import JobQueue
from ganger.storage.ganeti.queries.jobs import OURS
from ganger.transport import messages
from ganger.transport.client import query_requests

DATA = Path(__file__).parent / "data"
RECORDED = {
    path.stem: one
    for path in (DATA / "luxi").glob("*.json")
    if (one := json.loads(path.read_text())).get("response", {}).get("success")
}
OF_FIELDS = sorted(
    name for name, one in RECORDED.items() if one["request"]["method"] == "QueryFields"
)
JOBS = {int(path.name.removeprefix("job-")) for path in (DATA / "queue").glob("job-*")}
OF_JOBS = sorted(
    name
    for name, one in RECORDED.items()
    if one["request"]["method"] == "Query"
    and one["request"]["args"][0] == "job"
    and any(row[0][1] in JOBS for row in one["response"]["result"]["data"])
)
NODE = "node/90910f02-036a-444f-8631-f25d6d53cb05"
LIVE = ["status"]
"""Fields of instances that only their nodes know."""


def request(name: str) -> query_requests.Query:
    """The message for a recorded query."""
    return query_requests.query(*RECORDED[name]["request"]["args"])


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = RECORDED[name]["response"]["result"]
    return found


def answered(asker: Asker) -> dict[str, Any]:
    found = asker.answer_as(messages.QueryAnswered)
    assert found.next_after is None
    return {"fields": found.fields, "data": json.loads(found.rows)}


@pytest.fixture
def store(stage: Stage) -> Staged[ConfigStore]:
    shutil.copy(DATA / "config.data", stage.places.config)
    return stage.start(ConfigStore)


@pytest.fixture
def queue(stage: Stage) -> Iterator[Staged[JobQueue]]:
    shutil.copytree(DATA / "queue", stage.places.queue, dirs_exist_ok=True)
    opened = stage.start(JobQueue)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", OF_FIELDS)
def test_fields_are_defined_as_recorded(store: Staged[ConfigStore], name: str) -> None:
    what, fields = RECORDED[name]["request"]["args"]
    answer = answered(store.ask(query_requests.query_fields(what, fields)))
    ganetis = [field for field in answer["fields"] if what != "job" or field["name"] not in OURS]
    assert ganetis == result(name)["fields"]


def test_filter_rules_are_answered_as_recorded(store: Staged[ConfigStore]) -> None:
    answer = answered(store.ask(request("034-Query-filter")))
    assert answer["fields"] == result("034-Query-filter")["fields"]
    stored = json.loads((DATA / "config.data").read_text())["filters"]
    assert answer["data"] == [
        [[0, uuid], [0, rule["action"]]] for uuid, rule in sorted(stored.items())
    ]


def test_groups_are_answered_as_recorded(store: Staged[ConfigStore]) -> None:
    answer = answered(store.ask(request("038-Query-group")))
    expected = result("038-Query-group")
    # The third group was added after the recording.
    expected = {**expected, "data": [*expected["data"], [[0, "rack3"], [0, []]]]}
    assert answer == expected


def test_instances_are_answered_as_recorded_but_for_what_only_nodes_know(
    store: Staged[ConfigStore],
) -> None:
    answer = answered(store.ask(request("037-Query-instance")))
    expected = result("037-Query-instance")
    assert answer["fields"] == expected["fields"]
    names = [field["name"] for field in expected["fields"]]
    for found, recorded in zip(answer["data"], expected["data"], strict=True):
        for name, (status, value), pair in zip(names, found, recorded, strict=True):
            assert [status, value] == ([0, "ERROR_nodedown"] if name in LIVE else pair)


@pytest.mark.parametrize("name", OF_JOBS)
def test_jobs_are_answered_as_recorded(queue: Staged[JobQueue], name: str) -> None:
    answer = answered(queue.ask(request(name)))
    expected = result(name)
    # Of the recorded queue a part was kept, and further jobs came after the query.
    last = expected["data"][-1][0][1]
    assert answer["fields"] == expected["fields"]
    assert [row for row in answer["data"] if row[0][1] <= last] == [
        row for row in expected["data"] if row[0][1] in JOBS
    ]


def test_locks_are_answered_as_recorded(stage: Stage) -> None:
    locks = Locks(stage)
    holder, waiter = locks.owner(123), locks.owner(124)

    def check(name: str) -> None:
        asker = locks.actor.ask(request(name))
        [asked] = stage.take_requests(messages.ListDependencies)
        asked.reply(messages.DependenciesListed(rows=[]))
        locks.actor.handle_mail()
        locks.actor.end_turn()
        locks.work_beside()
        assert answered(asker) == result(name)

    check("035-Query-lock")
    locks.take(holder, ("cluster/BGL", "shared"))
    locks.take(holder, (NODE, "exclusive"))
    locks.take(waiter, ("cluster/BGL", "shared"))
    locks.ask(waiter, (NODE, "exclusive"))
    check("160-Query-lock-held")
    for owner in (holder, waiter):
        locks.kill(owner)
