"""The job actor at the gate: what it does when the rules in force do not let its opcode start."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.actors.job.test_job import DELAY, LOCKED, FakeLink, actor, file

from ganger.actors.job import conversation
from ganger.actors.job.job import JobActor
from ganger.storage import config_files, opcodes
from ganger.storage.disk.paths import Places
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.links.link import Received
from ganger.transport.messages import ChosenUnder, GateAnswered

QUEUED, CANCELED, SUCCESS = JobStatus.QUEUED, JobStatus.CANCELED, JobStatus.SUCCESS
ERROR = JobStatus.ERROR
UUID = "aaaaaaaa-0000-4000-8000-000000000000"
PAUSED = GateAnswered(is_open=False, text="paused by a rule")
REJECTED = GateAnswered(is_open=False, text="rejected by a rule", is_rejected=True)


class Gated(FakeLink):
    """A line to a daemon whose lock manager and queue answer as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = GateAnswered(is_open=True, chain=9)
        self.is_gate_heard = True
        self.begins = GateAnswered(is_open=True)
        self.locks_are_free = True
        self.dependencies = messages.DependencyOutcome(verdict="satisfied")
        self.then: Callable[[], None] = lambda: None
        self.with_gate: Callable[[], None] = lambda: None

    def send(self, message: messages.Message, number: int) -> bool:
        answer: messages.Message
        match message:
            case messages.AskGate():
                self.said.append(message)
                if self.is_gate_heard:
                    self._answers.append(Received(self.gate, number))
                self.with_gate()
                return True
            case messages.RecordState() if message.begins is not None and not self.begins.is_open:
                self.then()
                answer = self.begins
            case messages.RequestLocks() if not self.locks_are_free:
                answer = messages.LocksPending(blockers=[])
            case messages.ReleaseLocks():
                answer = messages.Done()
            case messages.AskDependencies():
                answer = self.dependencies
            case messages.JobWaits():
                self.said.append(message)
                self.then()
                return True
            case _:
                return super().send(message, number)
        self.said.append(message)
        self._answers.append(Received(answer, number))
        return True

    def wait(self, *for_what: object) -> list[int]:
        assert self._answers or for_what[-1] is not None, "it waits, and nothing more comes"
        return []

    def kinds(self) -> list[str]:
        return [type(one).__name__ for one in self.said]


def two_opcodes(folder: Path, line: FakeLink, *inputs: dict[str, Any]) -> JobActor:
    job = actor(folder, line, inputs[0])
    second = jobs.OpcodeEntry(input=opcodes.check_opcode(dict(inputs[1])))
    job._job.ops.append(second)
    return job


def test_an_ordinary_job_asks_nothing_extra(tmp_path: Path) -> None:
    line = Gated()
    actor(tmp_path, line, DELAY).run()
    assert line.kinds() == ["RecordState", "RecordState", "JobLeft"]
    assert [state.begins for state in line.states()] == [ChosenUnder(), None]


def test_a_job_whose_first_opcode_may_not_start_goes_back_as_if_it_had_never_been_chosen(
    tmp_path: Path,
) -> None:
    line = Gated()
    line.begins = PAUSED
    actor(tmp_path, line, DELAY).run()
    job = file(tmp_path)
    assert (job.status, job.start_timestamp, job.livelock) == (QUEUED, None, None)
    assert (job.ops[0].exec_timestamp, job.ops[0].start_timestamp) == (None, None)
    text = "Back to the queue before opcode 1: paused by a rule"
    assert [entry[3] for entry in job.ops[0].log] == [text]
    assert line.kinds()[-2:] == ["JobReturns", "JobLeft"]


def test_a_job_that_is_rejected_before_its_first_opcode_is_canceled(tmp_path: Path) -> None:
    line = Gated()
    line.begins = REJECTED
    actor(tmp_path, line, DELAY).run()
    [op] = file(tmp_path).ops
    assert (op.status, op.exec_timestamp, op.result) == (CANCELED, None, None)
    assert op.input["reason"][-1][:2] == ["ganger:filter", "rejected by a rule"]


def test_before_a_later_opcode_with_locks_the_gate_is_asked_first(tmp_path: Path) -> None:
    line = Gated()
    two_opcodes(tmp_path, line, DELAY, LOCKED).run()
    assert line.kinds()[:4] == ["RecordState", "AskGate", "RequestLocks", "RecordState"]
    # What the gate said counts for the record.
    assert [state.begins for state in line.states()] == [ChosenUnder(), ChosenUnder(9), None]


def test_the_locks_of_an_opcode_are_released_before_the_next_one_asks_for_its_own(
    tmp_path: Path,
) -> None:
    line = Gated()
    two_opcodes(tmp_path, line, LOCKED, LOCKED).run()
    kinds = [kind for kind in line.kinds() if kind.endswith("Locks")]
    assert kinds == ["RequestLocks", "ReleaseLocks", "RequestLocks"]


def test_before_a_later_opcode_without_locks_only_the_record_asks(tmp_path: Path) -> None:
    line = Gated()
    two_opcodes(tmp_path, line, DELAY, DELAY).run()
    assert "AskGate" not in line.kinds()


@pytest.mark.parametrize(
    ("verdict", "status"),
    [("satisfied", SUCCESS), ("open", QUEUED), ("canceled", CANCELED), ("failed", ERROR)],
)
def test_the_dependencies_of_a_later_opcode_are_asked_for_before_its_locks(
    tmp_path: Path,
    verdict: Literal["satisfied", "open", "canceled", "failed"],
    status: JobStatus,
) -> None:
    line = Gated()
    line.dependencies = messages.DependencyOutcome(verdict=verdict, text="Job 3 failed")
    depends = {"depends": [[3, ["success"]]]}
    # The queue has checked those of the first one before it chose the job.
    two_opcodes(tmp_path, line, {**DELAY, **depends}, {**LOCKED, **depends}).run()
    assert line.kinds()[:2] == ["RecordState", "AskDependencies"]
    assert line.said[1] == messages.AskDependencies(job_id=5, depends=[(3, ["success"])])
    assert ("RequestLocks" in line.kinds()) == (verdict == "satisfied")
    job = file(tmp_path)
    assert job.status is status
    assert ("Job 3 failed" in str(job.ops[1].result)) == (verdict == "failed")


@pytest.mark.parametrize(("gate", "status"), [(PAUSED, QUEUED), (REJECTED, CANCELED)])
@pytest.mark.parametrize("word", [messages.GateChanged(), messages.ResendRequested(), None])
def test_a_job_that_waits_for_locks_asks_again_when_the_rules_may_have_changed(
    tmp_path: Path, gate: GateAnswered, status: JobStatus, word: messages.Message | None
) -> None:
    line = Gated()
    line.locks_are_free = False
    line.gate = gate

    def change() -> None:
        line.then = lambda: None
        if word is None:
            # A successor of the daemon was reached.
            line.has_changed = True
        else:
            line.hear(word)

    line.then = change
    actor(tmp_path, line, LOCKED).run()
    job = file(tmp_path)
    assert (job.status, job.ops[0].exec_timestamp) == (status, None)
    asked = line.kinds().index("AskGate")
    # It withdraws its request, and does not repeat it.
    assert "RequestLocks" not in line.kinds()[asked:]
    if status is QUEUED:
        assert "ReleaseLocks" in line.kinds()[asked:]


def test_a_change_of_rules_that_comes_together_with_the_answer_of_the_gate_counts(
    tmp_path: Path,
) -> None:
    line = Gated()
    line.locks_are_free = False
    line.then = lambda: line.hear(messages.GateChanged())

    def with_gate() -> None:
        # The queue has answered by the rules before, and other ones are in force by now.
        line.with_gate = lambda: None
        line.gate = PAUSED
        line.hear(messages.GateChanged())

    line.with_gate = with_gate
    actor(tmp_path, line, LOCKED).run()
    assert file(tmp_path).status is QUEUED
    assert line.kinds().count("AskGate") == 2


def test_a_gate_that_is_slow_to_answer_is_asked_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "REPLY_SECONDS", 0.01)
    line = Gated()
    line.locks_are_free = line.is_gate_heard = False
    line.gate = PAUSED
    line.then = lambda: line.hear(messages.GateChanged())

    def with_gate() -> None:
        line.is_gate_heard = line.kinds().count("AskGate") == 2

    line.with_gate = with_gate
    actor(tmp_path, line, LOCKED).run()
    assert file(tmp_path).status is QUEUED
    assert line.kinds().count("AskGate") == 3


def test_locks_that_come_while_the_gate_is_slow_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "REPLY_SECONDS", 0.01)
    line = Gated()
    line.locks_are_free = line.is_gate_heard = False
    line.then = lambda: line.hear(messages.GateChanged())

    def with_gate() -> None:
        [wanted] = [
            number
            for number, request in job._daemon.link.open.items()
            if isinstance(request, messages.RequestLocks)
        ]
        line._answers.append(Received(messages.LocksGranted(), wanted))

    line.with_gate = with_gate
    job = actor(tmp_path, line, LOCKED)
    job.run()
    assert file(tmp_path).status is SUCCESS
    assert line.kinds().count("AskGate") == 1


def test_an_open_gate_lets_it_wait_on(tmp_path: Path) -> None:
    line = Gated()
    line.locks_are_free = False
    waits = 0

    def change() -> None:
        line.hear(messages.GateChanged())

    def wait(*_: object) -> list[int]:
        nonlocal waits
        waits += 1
        if waits == 3:
            [number] = job._daemon.link.open
            line._answers.append(Received(messages.LocksGranted(), number))
        return []

    line.then = change
    line.wait = wait  # type: ignore[method-assign]
    job = actor(tmp_path, line, LOCKED)
    job.run()
    assert file(tmp_path).status is SUCCESS
    assert line.kinds().count("AskGate") == 1


def test_what_is_asked_while_a_start_is_being_recorded_is_answered_when_that_is_known(
    tmp_path: Path,
) -> None:
    line = Gated()
    line.begins = PAUSED

    def ask_twice() -> None:
        line.hear(messages.PriorityRequested(token=4, priority=-7))
        line.hear(messages.PriorityRequested(token=5, priority=-3))

    line.then = ask_twice
    actor(tmp_path, line, DELAY).run()
    # The opcode does not run, so it takes the new priorities, in their order.
    answers = [one for one in line.said if isinstance(one, messages.PriorityAnswered)]
    assert [(one.token, one.accepted) for one in answers] == [(4, True), (5, True)]
    assert file(tmp_path).ops[0].priority == -3
    # No other state than the refused one claims that it runs.
    assert [state.status for state in line.states() if state.begins is None] == [QUEUED] * 2


def test_a_new_priority_goes_to_the_line_for_locks_and_into_what_is_repeated(
    tmp_path: Path,
) -> None:
    line = Gated()
    line.locks_are_free = False
    words: list[messages.Message] = [
        messages.PriorityRequested(token=1, priority=5),
        messages.ResendRequested(),
        messages.CancelRequested(token=2),
    ]

    def wait(*_: object) -> list[int]:
        if words:
            line.hear(words.pop(0))
        return []

    line.wait = wait  # type: ignore[method-assign]
    job = actor(tmp_path, line, LOCKED)
    job.run()
    # The request of a canceled job is not repeated to a new lock manager.
    assert job._daemon.link.open == {}
    requests = [one for one in line.said if isinstance(one, messages.RequestLocks)]
    # The link hands over the request to repeat it twice.
    assert [request.priority for request in requests] == [0, 5, 5, 5]
    assert len({str(request.changes) for request in requests}) == 1
    # The lock manager has it before the reply that it was changed.
    kinds = line.kinds()
    assert kinds.index("RequestLocks", 1) < kinds.index("PriorityAnswered")


# Without a daemon.


def alone(folder: Path, *rules: dict[str, Any]) -> tuple[Path, Gated]:
    """A queue directory in a data directory with these rules, and no daemon."""
    places = Places(folder, folder)
    places.queue.mkdir()
    configuration = config_files.first_configuration("alone", 0.0)
    configuration["filters"] = {rule["uuid"]: rule for rule in rules}
    config_files.write(places.config, configuration)
    line = Gated()
    line.is_up = False
    return places.queue, line


def rule(action: object, **fields: Any) -> dict[str, Any]:
    return {"uuid": UUID, "watermark": 0, "action": action, **fields}


def test_without_a_daemon_a_job_goes_on_as_far_as_the_stored_rules_let_it(tmp_path: Path) -> None:
    queue, line = alone(tmp_path)
    actor(queue, line, DELAY).run()
    assert file(queue).status is SUCCESS


@pytest.mark.parametrize(
    ("action", "status"),
    [("PAUSE", QUEUED), ("REJECT", CANCELED), (["RATE_LIMIT", 2], QUEUED), ("ACCEPT", SUCCESS)],
)
def test_without_a_daemon_the_stored_rules_decide(
    tmp_path: Path, action: object, status: JobStatus
) -> None:
    queue, line = alone(tmp_path, rule(action))
    actor(queue, line, DELAY).run()
    job = file(queue)
    assert job.status is status
    assert (job.ops[0].exec_timestamp is None) is (status is not SUCCESS)


def test_a_job_chosen_under_the_stored_limit_goes_on_alone(tmp_path: Path) -> None:
    queue, line = alone(tmp_path, rule(["RATE_LIMIT", 2]))
    job = actor(queue, line, DELAY)
    job._gate.chosen = ChosenUnder(3, f"{UUID} 2")
    job.run()
    assert file(queue).status is SUCCESS


def test_a_stored_rejection_leaves_a_job_that_runs_alone(tmp_path: Path) -> None:
    queue, line = alone(tmp_path)
    job = two_opcodes(queue, line, DELAY, DELAY)
    job._job.ops[0].status = SUCCESS
    Places(tmp_path, tmp_path).config.unlink()
    alone_again = config_files.first_configuration("alone", 0.0)
    alone_again["filters"] = {UUID: rule("REJECT")}
    config_files.write(Places(tmp_path, tmp_path).config, alone_again)
    job.run()
    assert file(queue).status is SUCCESS


def test_rules_that_cannot_be_read_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, line = alone(tmp_path, rule("PAUSE", valid_until=time.time() - 1))
    config = Places(tmp_path, tmp_path).config
    whole = config.read_bytes()
    for path in (config, config_files.copy_path(config)):
        path.write_bytes(b"{")
    job = actor(queue, line, DELAY)
    waited: list[None] = []

    def wait() -> None:
        waited.append(None)
        if len(waited) == 2:
            assert json.loads(whole)
            config.write_bytes(whole)

    monkeypatch.setattr(job._daemon, "rest", wait)
    job.run()
    assert len(waited) == 2
    assert file(queue).status is SUCCESS


def test_a_job_that_waits_for_locks_asks_again_when_its_priority_changes(tmp_path: Path) -> None:
    line = Gated()
    line.locks_are_free = False

    def change() -> None:
        line.then = lambda: None
        line.gate = PAUSED
        asked = messages.PriorityRequested(token=3, priority=-5)
        line._answers.append(Received(asked, 0))

    line.then = change
    job = actor(tmp_path, line, LOCKED)
    job._gate.chosen = ChosenUnder(9)
    job.run()
    [asked] = [one for one in line.said if isinstance(one, messages.AskGate)]
    # Whatever it was chosen under: rules may look at priorities.
    assert asked.chosen == ChosenUnder()
    assert file(tmp_path).status is QUEUED
