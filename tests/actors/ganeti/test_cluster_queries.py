"""Queries for objects of Ganeti's configuration, and those of jobs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.actors.runtime.stage import Asker, Stage, Staged
from tests.storage.queries.recorded_answers import RECORDED, larger, recorded

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.ganeti.config_part import GanetiPart
from ganger.actors.runtime.mailbox import Expired
from ganger.storage import errors
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.ganeti.queries.locks import LOCKS
from ganger.storage.ganeti.queries.resources import RESOURCES
from ganger.transport import messages


@pytest.fixture
def store(stage: Stage) -> Staged[ConfigStore]:
    stage.places.config.write_bytes(msgspec.json.encode(larger()))
    return stage.start(ConfigStore)


def answered(asker: Asker) -> dict[str, Any]:
    """The answer, in Ganeti's form."""
    found = asker.answer_as(messages.QueryAnswered)
    return {"fields": found.fields, "data": json.loads(found.rows)}


def test_the_recorded_cluster_is_answered_as_recorded(stage: Stage) -> None:
    stage.places.config.write_bytes(msgspec.json.encode(RECORDED))
    store = stage.start(ConfigStore)
    answer = answered(store.ask(messages.QueryConfiguration("group", ["name", "node_list"])))
    expected = recorded("038-Query-group")
    # The third group was added after the recording.
    expected["data"].append([[0, "rack3"], [0, []]])
    assert answer == expected


@pytest.mark.parametrize(
    ("what", "container"),
    [
        ("node", "nodes"),
        ("instance", "instances"),
        ("group", "nodegroups"),
        ("network", "networks"),
    ],
)
def test_each_kind_of_object_is_answered(
    store: Staged[ConfigStore], what: str, container: str
) -> None:
    answer = answered(store.ask(messages.QueryConfiguration(what, ["uuid"])))
    assert {row[0][1] for row in answer["data"]} == set(larger()[container])


def test_a_classic_answer_has_bare_values(store: Staged[ConfigStore]) -> None:
    wanted = ["|", *(["==", "name", name] for name in ("node10", "nobody", "n2"))]
    query = messages.QueryConfiguration("node", ["name", "mfree"], wanted, is_classic=True)
    assert answered(store.ask(query))["data"] == [
        ["node2.example.com", None],
        ["node10.example.com", None],
    ]
    unknown = messages.QueryConfiguration("node", ["a", "name", "b"], is_classic=True)
    assert store.ask(unknown).refusal == (
        "BadRequestError",
        "Unknown output fields selected: a, b",
    )


def test_an_answer_shows_the_newest_change(store: Staged[ConfigStore]) -> None:
    query = messages.QueryConfiguration("node", ["ndp/ssh_port"], ["==", "name", "node2"])
    assert answered(store.ask(query))["data"] == [[[0, 2222]]]
    port = (["ndparams", "ssh_port"], 2022)
    changed = messages.SetValues(kind=ObjectKind.NODE, name="n2", values=[port])
    store.ask(changed).answer_as(messages.ObjectsChanged)
    assert answered(store.ask(query))["data"] == [[[0, 2022]]]


def test_the_view_of_a_snapshot_serves_several_queries(store: Staged[ConfigStore]) -> None:
    query = messages.QueryConfiguration("node", ["pinst_list"])
    first = answered(store.ask(query))
    [part] = store.component._parts._parts
    assert isinstance(part, GanetiPart)
    view = part._queries._view
    assert answered(store.ask(query)) == first
    assert part._queries._view is view


@pytest.mark.parametrize("is_drained", [False, True])
def test_the_cluster_has_values_that_no_object_has(
    stage: Stage, store: Staged[ConfigStore], *, is_drained: bool
) -> None:
    if is_drained:
        (stage.places.queue / "drain").touch()
    fields = ["name", "drain_flag", "watcher_pause", "software_version"]
    answer = answered(store.ask(messages.QueryConfiguration("cluster", fields)))
    name = RECORDED["cluster"]["cluster_name"]
    assert answer["data"] == [[[0, name], [0, is_drained], [3, None], [0, "3.0.2"]]]


def test_the_watcher_is_paused_until_the_time_is_over(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    def paused() -> Any:
        query = messages.QueryConfiguration("cluster", ["watcher_pause"], is_classic=True)
        return answered(store.ask(query))["data"][0][0]

    assert paused() is None
    until = stage.today + 60
    set_pause = messages.SetWatcherPause(until, sender="root, pid 7")
    assert store.ask(set_pause).answer == messages.Done()
    assert (stage.places.data / "watcher.pause").read_text() == f"{until:.0f}\n"
    assert "root, pid 7" in stage.log_stream.getvalue()
    assert paused() == until
    stage.today = until + 1
    assert paused() is None
    stage.today = until - 1
    assert store.ask(messages.SetWatcherPause(None)).answer == messages.Done()
    assert paused() is None
    name, text = store.ask(messages.SetWatcherPause(1e30)).refusal
    assert (name, text[:6]) == ("BadRequestError", "until:")


def test_fields_are_defined_for_everything_that_can_be_asked_for(
    store: Staged[ConfigStore],
) -> None:
    for what, resource in RESOURCES.items():
        found = answered(store.ask(messages.QueryFields(what)))
        assert [field["name"] for field in found["fields"]] == list(resource.fields)
        assert found["data"] == []
    chosen = answered(store.ask(messages.QueryFields("node", ["uuid", "bogus"])))["fields"]
    assert [(field["name"], field["kind"]) for field in chosen] == [
        ("uuid", "text"),
        ("bogus", "unknown"),
    ]


def test_a_damaged_configuration_fails_a_query_and_not_the_store(stage: Stage) -> None:
    document = larger()
    document["instances"]["i10"]["nics"] = 5
    stage.places.config.write_bytes(msgspec.json.encode(document))
    store = stage.start(ConfigStore)
    name, text = store.ask(messages.QueryConfiguration("instance", ["nic.macs"])).refusal
    assert name == "IntegrityError"
    assert text.startswith("the configuration is damaged: ")
    assert answered(store.ask(messages.QueryConfiguration("instance", ["uuid"])))["data"]


# ---------------------------------------------------------------- for jobs


def run(what: str, fields: list[str] | None = None, **more: Any) -> messages.RunQuery:
    return messages.RunQuery(7, what, fields, **more)


def test_a_job_asks_for_objects_and_definitions(store: Staged[ConfigStore]) -> None:
    answer = answered(store.ask(run("group", ["name"], filter=["==", "name", "rack10"])))
    assert answer["data"] == [[[0, "rack10"]]]
    defined = answered(store.ask(run("lock", is_of_fields=True)))
    assert [field["name"] for field in defined["fields"]] == list(LOCKS.fields)


@pytest.mark.parametrize(
    ("what", "to", "kind"),
    [("job", "job_queue", messages.QueryJobs), ("lock", "lock_manager", messages.QueryLocks)],
)
def test_a_jobs_query_for_jobs_and_locks_is_passed_on(
    stage: Stage,
    store: Staged[ConfigStore],
    what: str,
    to: str,
    kind: type[messages.QueryJobs | messages.QueryLocks],
) -> None:
    asker = store.ask(run(what, ["x"], filter=["?", "y"], after="z"))
    stage.take_one(kind, to)
    [asked] = stage.take_requests(kind)
    assert asked.message == kind(["x"], ["?", "y"], "z")
    reply = messages.QueryAnswered(fields=[], rows=b"[]", next_after="w")
    asked.reply(reply)
    store.handle_mail()
    assert asker.answer == reply


def test_a_jobs_query_waits_as_long_as_it_takes(stage: Stage, store: Staged[ConfigStore]) -> None:
    asker = store.ask(run("job", ["id"]))
    [first] = stage.take_requests(messages.QueryJobs)
    store.handle(Expired(first.number))
    [second] = stage.take_requests(messages.QueryJobs)
    assert asker.answers == []
    second.refuse(errors.ParameterError("no"))
    store.handle_mail()
    assert asker.refusal == ("ParameterError", "no")


@pytest.mark.parametrize(
    ("message", "name", "text"),
    [
        (
            messages.QueryConfiguration("job", ["id"]),
            "BadRequestError",
            "what: 'job': expected one of cluster, export, filter, group, instance, network, node",
        ),
        (
            messages.QueryFields("os"),
            "BadRequestError",
            "what: 'os': expected one of cluster, export, filter, group, instance, job, lock,",
        ),
        (
            messages.QueryConfiguration("node", ["name"], ["==", "name", "nobody"]),
            "UnknownObjectError",
            "Node name nobody not found",
        ),
        (
            messages.QueryConfiguration("node", ["name"], ["??", "name", "x"]),
            "FilterRuleError",
            "filter[0]: Unknown filter operand '??'; expected one of",
        ),
        (
            run("os", ["name"]),
            "BadRequestError",
            "what: 'os': expected one of cluster, export, filter, group, instance, job, lock,",
        ),
        (messages.QueryFields("node", ["x"] * 1_001), "BadRequestError", "fields: expected at"),
    ],
)
def test_a_wrong_query_is_refused_and_says_why(
    store: Staged[ConfigStore], message: messages.Message, name: str, text: str
) -> None:
    refused = store.ask(message).refusal
    assert refused[0] == name
    assert refused[1].startswith(text)
