"""This machine answers for its node, beside the turns of the store, and never holds them up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.actors.runtime.stage import Asker, Stage, Staged
from tests.storage.queries.recorded_answers import larger

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.ganeti import notices, own_host
from ganger.actors.processes import host_figures
from ganger.storage.ganeti.queries.nodes import LIVE_FIELDS
from ganger.transport import messages

MEMORY = messages.QueryConfiguration("node", ["name", "mfree"])


class Machine:
    """Stands in for the machine: how often it was measured, and where its disk lies."""

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []

    def figures(self, storage: Sequence[str]) -> dict[str, Any]:
        self.asked.append(storage)
        return {"mfree": len(self.asked)}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(host_figures, "figures", made.figures)
    monkeypatch.setattr(host_figures, "name", lambda: "node1.example.com")
    return made


@pytest.fixture
def store(stage: Stage) -> Staged[ConfigStore]:
    document = larger()
    document["cluster"] |= {"enabled_disk_templates": ["file"], "file_storage_dir": "/srv/files"}
    stage.places.config.write_bytes(msgspec.json.encode(document))
    made = stage.start(ConfigStore)
    stage.timers.clear()
    return made


def measured(stage: Stage, store: Staged[ConfigStore]) -> None:
    """The thread measures, and the store hears of it."""
    for timer in [timer for timer in stage.timers if timer.seconds == 0]:
        stage.timers.remove(timer)
        timer.run_out()
    store.turn(*stage.take(notices.HostMeasured))


def overdue(stage: Stage, store: Staged[ConfigStore]) -> None:
    """The thread takes longer than queries wait."""
    (timer,) = [timer for timer in stage.timers if timer.seconds == own_host.OWN_HOST_SECONDS]
    stage.timers.remove(timer)
    timer.run_out()
    store.turn(stage.take_one(notices.HostOverdue))


def free(asker: Asker) -> dict[str, list[Any]]:
    """What the answer shows of each node."""
    rows = json.loads(asker.answer_as(messages.QueryAnswered).rows)
    return {name[1].partition(".")[0]: memory for name, memory in rows}


def test_the_own_node_is_measured_in_a_thread(
    stage: Stage, store: Staged[ConfigStore], host: Machine
) -> None:
    asker = store.ask(MEMORY)
    assert not asker.answers
    assert host.asked == []
    measured(stage, store)
    nothing, offline = [2, None], [4, None]
    assert free(asker) == {
        "node1": [0, 1],
        "node2": nothing,
        "node3": nothing,
        "node10": offline,
    }
    assert host.asked == [["/srv/files", str(stage.places.data)]]


@pytest.mark.usefixtures("host")
def test_queries_that_come_meanwhile_share_the_answer(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    askers = [store.ask(MEMORY) for _ in range(3)]
    measured(stage, store)
    assert [free(asker)["node1"] for asker in askers] == [[0, 1]] * 3
    again = store.ask(MEMORY)
    measured(stage, store)
    assert free(again)["node1"] == [0, 2]


@pytest.mark.usefixtures("host")
def test_a_filter_may_look_at_live_fields(stage: Stage, store: Staged[ConfigStore]) -> None:
    wanted = ["&", ["?", "master"], [">", "mfree", 7]]
    asker = store.ask(messages.QueryConfiguration("node", ["name"], wanted))
    measured(stage, store)
    assert asker.answer_as(messages.QueryAnswered).rows == b"[]"


@pytest.mark.usefixtures("host")
def test_an_opcode_asks_too(stage: Stage, store: Staged[ConfigStore]) -> None:
    asker = store.ask(messages.RunQuery(job_id=1, what="node", fields=["name", "mfree"]))
    measured(stage, store)
    assert free(asker)["node1"] == [0, 1]


def test_nothing_is_measured_that_nobody_asks_for(
    stage: Stage, store: Staged[ConfigStore], host: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.ask(messages.QueryConfiguration("node", ["name"])).answer_as(messages.QueryAnswered)
    store.ask(messages.QueryConfiguration("instance", ["oper_ram"])).answer_as(
        messages.QueryAnswered
    )
    monkeypatch.setattr(host_figures, "name", lambda: "elsewhere.example.com")
    assert free(store.ask(MEMORY))["node1"] == [2, None]
    assert not stage.timers
    assert host.asked == []


@pytest.mark.usefixtures("host")
def test_a_machine_that_hangs_is_a_node_that_does_not_answer(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    asker = store.ask(MEMORY)
    overdue(stage, store)
    assert free(asker)["node1"] == [2, None]
    # Nobody waits for the same thread again, and no second one hangs beside it.
    assert free(store.ask(MEMORY))["node1"] == [2, None]
    measured(stage, store)
    asker = store.ask(MEMORY)
    measured(stage, store)
    assert free(asker)["node1"] == [0, 2]


@pytest.mark.usefixtures("host")
def test_figures_are_those_of_the_node_that_was_measured(
    stage: Stage, store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = store.ask(MEMORY)
    monkeypatch.setattr(host_figures, "name", lambda: "node2.example.com")
    measured(stage, store)
    assert free(asker) | {"node1": [0, 1], "node2": [2, None]} == free(asker)


@pytest.mark.usefixtures("host")
def test_an_error_of_the_answer_goes_to_who_asked(stage: Stage, store: Staged[ConfigStore]) -> None:
    query = messages.QueryConfiguration("node", ["mfree"], [">", "mfree", "much"])
    first, second = store.ask(query), store.ask(MEMORY)
    measured(stage, store)
    assert first.refusal[0] == "ParameterError"
    assert free(second)["node1"] == [0, 1]


@pytest.mark.parametrize(
    "damage", [{"enabled_disk_templates": [[]]}, {"enabled_disk_templates": {"file": 1}}]
)
@pytest.mark.usefixtures("host")
def test_a_damaged_configuration_is_no_reason_to_fail(stage: Stage, damage: dict[str, Any]) -> None:
    document = larger()
    document["cluster"] |= damage
    stage.places.config.write_bytes(msgspec.json.encode(document))
    store = stage.start(ConfigStore)
    asker = store.ask(MEMORY)
    measured(stage, store)
    assert asker.answers


@pytest.mark.usefixtures("host")
def test_a_short_name_of_the_machine_is_enough(
    stage: Stage, store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_figures, "name", lambda: "node2")
    asker = store.ask(MEMORY)
    measured(stage, store)
    assert free(asker)["node2"] == [0, 1]


def test_only_spindles_are_missing(tmp_path: Path) -> None:
    assert LIVE_FIELDS - host_figures.figures([str(tmp_path)]).keys() == {"spfree", "sptotal"}
