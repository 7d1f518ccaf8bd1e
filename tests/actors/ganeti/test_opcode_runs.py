"""The store carries out opcodes of jobs, each once, also when it or its daemon was replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests import clusters
from tests.actors.runtime.stage import Asker, Stage, Staged
from tests.clusters import uuid_of
from tests.refusals import refusing

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.ganeti import notices, opcode_runs
from ganger.actors.ganeti.config_part import GanetiPart
from ganger.storage import config_files
from ganger.storage.alive import lock_files, process_identity
from ganger.storage.disk import descriptors, line_files
from ganger.storage.ganeti import tags
from ganger.storage.ganeti.opcodes.catalogue import RUN_IN_STORE
from ganger.storage.ganeti.operations import deciding
from ganger.storage.ganeti.operations.table import OPERATIONS
from ganger.storage.opcodes import OperationError
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import OpcodePrepared, OpcodeRan

NEW_UUID = "99999999-0000-4000-8000-000000000000"
NODE = uuid_of("nodes", 0)
EVERYTHING: messages.PlainLocks = {
    level: {"shared": ("*",)} for level in ("instance", "nodegroup", "node")
}
LOCK: messages.PlainLocks = {"node": {"exclusive": (NODE,)}}


HELD: list[str] = []
"""The lock file of the job whose process lives."""


@pytest.fixture(autouse=True)
def _process_of_the_job(tmp_path: Path) -> Iterator[None]:
    held = lock_files.create(tmp_path, lock_files.job_stem(7, 1.0, process_identity.own()))
    HELD[:] = [held.path]
    yield
    held.remove()


@pytest.fixture
def store(stage: Stage) -> Staged[ConfigStore]:
    config_files.write(stage.places.config, clusters.made_configuration(nodes=2, instances=2))
    return stage.start(ConfigStore)


def on_disk(stage: Stage) -> dict[str, Any]:
    found = config_files.read(stage.places.config)
    assert found is not None
    return found


def tagging(*names: str, op_id: str = "OP_TAGS_SET") -> dict[str, Any]:
    return {"OP_ID": op_id, "kind": "node", "name": "node0", "tags": list(names)}


def prepare(store: Staged[ConfigStore], opcode: dict[str, Any]) -> OpcodePrepared:
    asked = messages.PrepareOpcode(job_id=7, op_index=0, opcode=opcode, new_uuid=NEW_UUID)
    return store.ask(asked).answer_as(OpcodePrepared)


def run(
    opcode: dict[str, Any],
    *,
    job_id: int = 7,
    op_index: int = 0,
    since: int = 7,
    locks: messages.PlainLocks = LOCK,
    lock_file: str | None = None,
) -> messages.RunOpcode:
    return messages.RunOpcode(
        job_id=job_id,
        op_index=op_index,
        opcode=opcode,
        new_uuid=NEW_UUID,
        locks=locks,
        since=since,
        lock_file=HELD[0] if lock_file is None else lock_file,
    )


def node_tags(stage: Stage) -> list[str]:
    found: list[str] = on_disk(stage)["nodes"][NODE]["tags"]
    return found


def successor(stage: Stage, store: Staged[ConfigStore]) -> Staged[ConfigStore]:
    """Another store after a kill: nothing was closed or written at the end."""
    return stage.start(ConfigStore, incarnation=store.actor.incarnation + 1)


def test_the_opcodes_that_the_store_carries_out_are_those_with_an_operation() -> None:
    hosts = {"OP_CLUSTER_VERIFY_GROUP", "OP_RESTRICTED_COMMAND"}
    only_locked = {"OP_QUERY", "OP_TEST_DELAY", *hosts}
    assert OPERATIONS.keys() - only_locked == RUN_IN_STORE


def test_the_locks_of_an_opcode_come_from_the_configuration(store: Staged[ConfigStore]) -> None:
    assert prepare(store, tagging("a")) == OpcodePrepared(locks=LOCK, serial_no=7)


def test_an_opcode_that_cannot_run_is_named_before_it_takes_locks(
    store: Staged[ConfigStore],
) -> None:
    unknown = prepare(store, {**tagging("a"), "name": "nosuch"})
    assert unknown.error == ("OpPrereqError", ["Node 'nosuch' not known", "unknown_entity"])
    malformed = prepare(store, {"OP_ID": "OP_TAGS_SET", "kind": "node"})
    assert malformed.error is not None
    assert malformed.error[0] == "OpPrereqError"


def test_an_opcode_changes_the_configuration_durably_and_says_who_did_it(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    assert store.ask(run(tagging("b", "a"))).answer == OpcodeRan()
    assert node_tags(stage) == ["a", "b"]
    [entry] = store.ask(messages.ReadHistory()).answer_as(messages.HistoryRead).entries
    assert (entry.who, entry.why, entry.serial) == ("job 7", "TAGS_SET", 8)


def test_an_error_is_the_result_and_changes_nothing(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    before = on_disk(stage)
    ran = store.ask(run(tagging("a", op_id="OP_TAGS_DEL"))).answer_as(OpcodeRan)
    assert ran.error == ("OpPrereqError", ["Tag(s) 'a' not found", "unknown_entity"])
    malformed = store.ask(run(tagging("a b"), op_index=1)).answer_as(OpcodeRan)
    assert malformed.error == ("TagError", ["Tag contains invalid characters"])
    assert on_disk(stage) == before


def test_an_opcode_without_its_locks_is_refused(stage: Stage, store: Staged[ConfigStore]) -> None:
    ran = store.ask(run(tagging("a"), locks={})).answer_as(OpcodeRan)
    assert ran.error is not None
    assert ran.error[1][1] == "wrong_state"
    assert node_tags(stage) == []


def test_an_opcode_that_would_break_the_configuration_is_refused(
    stage: Stage, store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The operation lets a tag pass that the rules of the configuration refuse.
    monkeypatch.setattr(tags, "added", lambda _tags, new: [*new, "not valid"])
    before = on_disk(stage)
    ran = store.ask(run(tagging("a"))).answer_as(OpcodeRan)
    assert ran.error is not None
    assert ran.error[0] == "ConfigurationError"
    assert on_disk(stage) == before


def test_an_opcode_that_the_disk_refuses_has_no_answer_and_may_be_repeated(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    with refusing("fdatasync"):
        name, _ = store.ask(run(tagging("a"))).refusal
    assert name in ("OutcomeUnknownError", "ReadOnlyError")
    assert node_tags(stage) == []
    assert stage.log_of_changes.retry()
    assert store.ask(run(tagging("a"))).answer == OpcodeRan()
    assert node_tags(stage) == ["a"]


def test_a_dry_run_leaves_no_trace(stage: Stage, store: Staged[ConfigStore]) -> None:
    before = on_disk(stage)
    ran = store.ask(run({**tagging("a"), "dry_run": True})).answer_as(OpcodeRan)
    assert (ran.result, ran.error, len(ran.log)) == (None, None, 1)
    assert on_disk(stage) == before


def test_an_opcode_whose_process_has_ended_changes_nothing_more(
    stage: Stage, store: Staged[ConfigStore], tmp_path: Path
) -> None:
    # Its locks are free: others may rely on what it would change.
    dead = str(tmp_path / "job_000008_1")
    name, text = store.ask(run(tagging("a"), job_id=8, lock_file=dead)).refusal
    assert name == "NotAllowedError"
    assert text == "the process of job 8 has ended; its opcode changes nothing"
    assert node_tags(stage) == []
    assert stage.log_of_changes.retry()
    assert store.ask(run(tagging("a"))).answer == OpcodeRan()


# Repeated.


def test_a_repeated_opcode_is_answered_and_not_run_twice(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    removed = run(tagging("a", op_id="OP_TAGS_DEL"), op_index=1)
    store.ask(run(tagging("a")))
    assert store.ask(removed).answer == OpcodeRan()
    # Decided again, it would fail: the tag is not there any more.
    assert store.ask(removed).answer == OpcodeRan()
    assert on_disk(stage)["serial_no"] == 9


def test_a_repeated_error_stays_an_error(stage: Stage, store: Staged[ConfigStore]) -> None:
    removed = run(tagging("a", op_id="OP_TAGS_DEL"))
    first = store.ask(removed).answer
    store.ask(run(tagging("a"), job_id=8))
    assert store.ask(removed).answer == first
    assert node_tags(stage) == ["a"]


def test_the_same_opcode_of_another_job_or_place_is_another_one(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    removed = tagging("a", op_id="OP_TAGS_DEL")
    store.ask(run(tagging("a")))
    assert store.ask(run(removed, op_index=1)).answer == OpcodeRan()
    for other in (run(removed, op_index=2), run(removed, job_id=8)):
        assert store.ask(other).answer_as(OpcodeRan).error is not None
    assert on_disk(stage)["serial_no"] == 9


@pytest.mark.parametrize("is_whole_written", [False, True])
def test_a_successor_knows_what_was_flushed_and_not_yet_answered(
    stage: Stage, store: Staged[ConfigStore], *, is_whole_written: bool
) -> None:
    store.ask(run(tagging("a")))
    removed = run(tagging("a", op_id="OP_TAGS_DEL"), op_index=1, since=8)
    store.ask(removed)
    if is_whole_written:
        # The journal is cut: the history has the answer.
        stage.run_timers()
        store.handle_mail()
        stage.run_timers()
    after = successor(stage, store)
    assert after.ask(removed).answer == OpcodeRan()
    assert on_disk(stage)["serial_no"] == 9
    # What came before the request is no answer to it.
    assert after.ask(run(tagging("c"), op_index=1, since=9)).answer == OpcodeRan()
    assert node_tags(stage) == ["c"]


def test_a_successor_finds_an_answer_that_a_kill_kept_out_of_the_history(
    stage: Stage, store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    store.ask(run(tagging("a")))
    removed = run(tagging("a", op_id="OP_TAGS_DEL"), op_index=1, since=8)
    monkeypatch.setattr(line_files, "append_line", killed)
    store.component.receive(Envelope(removed, Asker()))
    # The lock is granted.
    [granted] = store.actor.mailbox.drain()
    store.component.runtime.take_answer(*granted.message)
    # The change is stored.
    [appended] = store.actor.mailbox.drain()
    with pytest.raises(KeyboardInterrupt):
        store.component.runtime.take_answer(*appended.message)
    monkeypatch.undo()
    after = successor(stage, store)
    assert after.ask(removed).answer == OpcodeRan()
    assert on_disk(stage)["serial_no"] == 9


def test_answers_beyond_the_limit_are_found_in_the_history(
    stage: Stage, store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opcode_runs, "OPCODE_ANSWERS_MAX", 2)
    store.ask(run(tagging("a")))
    removed = run(tagging("a", op_id="OP_TAGS_DEL"), op_index=1, since=8)
    store.ask(removed)
    for job_id in (8, 9, 10):
        store.ask(run(tagging("b"), job_id=job_id, since=9))
    [part] = store.component._parts._parts
    assert isinstance(part, GanetiPart)
    assert len(part._opcodes._answers._newest) == 2
    assert store.ask(removed).answer == OpcodeRan()
    assert on_disk(stage)["serial_no"] == 10


def test_a_result_that_is_too_large_is_an_error(
    store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opcode_runs, "OPCODE_ANSWER_BYTES_MAX", 10)
    search = {"OP_ID": "OP_TAGS_SEARCH", "pattern": "web"}
    ran = store.ask(run(search)).answer_as(OpcodeRan)
    assert ran.error is not None
    assert ran.error[0] == "OpResultError"
    assert "expected at most 10" in ran.error[1][0]


# What is in force.


def test_an_opcode_that_changes_the_cluster_is_answered_when_the_change_is_in_force(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    tagged = {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": ["a"]}
    asker = store.ask(run(tagged, locks={}))
    changed = stage.take_one(messages.LimitsChanged, to="scheduler")
    assert asker.answers == []
    store.notify(messages.LimitApplied(serial=changed.serial))
    assert asker.answer == OpcodeRan()


def test_new_run_slots_are_in_force_when_the_opcode_is_answered(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    settings_of = {"OP_ID": "OP_CLUSTER_SET_PARAMS", "max_running_jobs": 7, "max_tracked_jobs": 9}
    asker = store.ask(run(settings_of, locks=EVERYTHING))
    changed = stage.take_one(messages.LimitsChanged, to="scheduler")
    assert changed.running_jobs_max == 7
    assert asker.answers == []
    store.notify(messages.LimitApplied(serial=changed.serial))
    assert asker.answer == OpcodeRan()
    assert on_disk(stage)["cluster"]["max_tracked_jobs"] == 9


def test_more_run_slots_than_descriptors_are_refused(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    budget = descriptors.DescriptorBudget(limit=100, listener=10, run_slots=5)
    stage.host = msgspec.structs.replace(stage.host, budget=budget)
    store = successor(stage, store)
    asked = {"OP_ID": "OP_CLUSTER_SET_PARAMS", "max_running_jobs": 100_000}
    before = on_disk(stage)
    ran = store.ask(run(asked, locks=EVERYTHING)).answer_as(OpcodeRan)
    assert ran.error is not None
    assert (ran.error[0], ran.error[1][1]) == ("OpPrereqError", "wrong_input")
    assert "100000 run slots" in ran.error[1][0]
    assert on_disk(stage) == before


def test_a_description_of_the_cluster_has_what_the_configuration_lacks(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    names = ["software_version", "drain_flag", "watcher_pause"]
    asked = {"OP_ID": "OP_CLUSTER_CONFIG_QUERY", "output_fields": names}
    found = store.ask(run(asked, locks={})).answer_as(OpcodeRan)
    assert found.result == ["3.0.2", False, None]
    (stage.places.queue / "drain").touch()
    (stage.places.data / "watcher.pause").write_text("1800000000.5\n")
    found = store.ask(run(asked, locks={}, op_index=1)).answer_as(OpcodeRan)
    assert found.result == ["3.0.2", True, 1_800_000_000.5]
    (stage.places.data / "watcher.pause").write_text("soon")
    found = store.ask(run(asked, locks={}, op_index=2)).answer_as(OpcodeRan)
    assert found.result == ["3.0.2", True, None]


# Decided in a thread.

ALL_SHARED: messages.PlainLocks = {
    level: {"shared": ("*",)} for level in ("instance", "nodegroup", "node", "node-res", "network")
}
VERIFICATION = {"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"}


def test_what_takes_long_is_decided_in_a_thread_and_others_go_on(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    verification = run(VERIFICATION, locks=ALL_SHARED)
    askers = [store.ask(verification), store.ask(verification)]
    assert store.ask(run(tagging("a"), job_id=8)).answer == OpcodeRan()
    assert [asker.answers for asker in askers] == [[], []]
    stage.run_timers()
    # The repeated request began no second thread.
    [decided] = stage.take(notices.OpcodeDecided)
    store.turn(decided)
    for asker in (*askers, store.ask(verification)):
        assert asker.answer_as(OpcodeRan).result is True
    # It came twice: nobody waits any more.
    store.turn(decided)


def test_a_successor_takes_no_decision_of_its_predecessor_for_one_of_its_own(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    verification = run(VERIFICATION, locks=ALL_SHARED)
    store.ask(verification)
    after = successor(stage, store)
    stage.run_timers()
    after.turn(*stage.take(notices.OpcodeDecided))
    asker = after.ask(verification)
    assert asker.answers == []
    stage.run_timers()
    after.turn(*stage.take(notices.OpcodeDecided))
    assert asker.answer_as(OpcodeRan).result is True


@pytest.mark.parametrize("error", [ValueError("odd"), OperationError("OpExecError", "odd")])
def test_an_error_in_the_thread_is_the_answer(
    stage: Stage, store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(deciding, "decided", fail)
    asker = store.ask(run(VERIFICATION, locks=ALL_SHARED))
    stage.run_timers()
    store.turn(*stage.take(notices.OpcodeDecided))
    ran = asker.answer_as(OpcodeRan)
    assert ran.error is not None
    assert ran.error[0] == "OpExecError"
    assert "odd" in ran.error[1][0]
