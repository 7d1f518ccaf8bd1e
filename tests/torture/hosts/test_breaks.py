"""The campaign finds what is broken on purpose: else it would prove nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.torture.hosts import simulated_hosts
from tests.torture.hosts.job import JobProcess

from ganger.actors.execution.reaper import Reaper
from ganger.actors.locks.lock_manager import LockManager
from ganger.actors.nodes.left_tasks import LeftTasks
from ganger.actors.nodes.node_calls import NodeCalls
from ganger.actors.nodes.node_link import NodeLink
from ganger.actors.nodes.task_ends import TaskEnds
from ganger.actors.runtime.addresses import JOB_QUEUE
from ganger.storage.nodes import begun_tasks, seals, task_marks
from ganger.transport import frames, messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 4
CASES_MAX = 600
FIRST = {
    "no_durable_key": 46,
    "late_submission_taken": 44,
    "old_directory_taken": 147,
    "begun_tasks_not_noted": 20,
    "every_era_taken": 290,
    "never_told_of_an_earlier_era": 159,
}
"""The first case that has found it, so that the search is short."""


def no_durable_key(patch: pytest.MonkeyPatch) -> None:
    """A host knows the tasks that live, and starts an archived one again."""

    def submit(link: Any, envelope: Any, message: messages.SubmitJobs) -> None:
        link._ends.note_submission(message.key or "", envelope.number)
        link.runtime.host.directory.tell("job_queue", envelope)

    patch.setattr(NodeLink, "_submit", submit)


def another_key_each_time(patch: pytest.MonkeyPatch) -> None:
    """The process asks under another key when it sends again."""
    call = JobProcess._post

    def post(process: Any, number: int) -> None:
        name, request = process._open[number]
        if isinstance(request, messages.CallNode) and request.is_start and process.agenda.now % 2:
            key = f"{process.task_key}-{process.agenda.now}"
            inner: Any = frames.decode(request.frame, messages.TaskRequest).message
            spec = messages.JobSpec(ops=inner.spec.ops, name=key)
            frame = frames.encode(messages.RunTask(spec=spec, key=key), 1)
            fields = {one: getattr(request, one) for one in request.__struct_fields__}
            process._open[number] = name, messages.CallNode(**{**fields, "frame": frame})
        call(process, number)

    patch.setattr(JobProcess, "_post", post)


def no_mark(patch: pytest.MonkeyPatch) -> None:
    """A process leaves no mark of its task."""
    patch.setattr(task_marks, "write", lambda *_, **__: None)


def locks_freed_early(patch: pytest.MonkeyPatch) -> None:
    """The lock manager frees the locks of a dead process, whatever it has marked."""
    patch.setattr(Reaper, "end_tasks", lambda reaper, one: reaper._tasks_ended(one, "freed"))


def locks_not_taken_back(patch: pytest.MonkeyPatch) -> None:
    """Nobody takes the locks of marked tasks back after a loss of power."""
    patch.setattr(LockManager, "_take_for_tasks", lambda _: None)


def end_told_early(patch: pytest.MonkeyPatch) -> None:
    """A host says that a task has ended when it has only been told to end."""

    def kill(ends: Any, key: str, job_id: int) -> None:
        ends._runtime.ask(
            JOB_QUEUE,
            messages.CancelJob(id=job_id, kill=True),
            lambda _: ends._answer(key),
            lambda _: None,
        )

    patch.setattr(TaskEnds, "_kill", kill)


def late_submission_taken(patch: pytest.MonkeyPatch) -> None:
    """A host starts a task of which it has said that it never began."""

    def note(ends: Any, key: str, handle: int) -> None:
        ends._submitting[key] = handle

    patch.setattr(TaskEnds, "note_submission", note)


def silent_means_over(patch: pytest.MonkeyPatch) -> None:
    """The hub takes the tasks of a silent host for ended."""

    def ask(left: Any, one: Any, _table: object) -> None:
        if not left._say(one.asked.node, one.number, messages.EndTask(key=one.asked.key)):
            left._end(one, "its command had ended by then")

    patch.setattr(LeftTasks, "_ask", ask)


def old_directory_taken(patch: pytest.MonkeyPatch) -> None:
    """A host with an older copy of its data directory is let in."""
    patch.setattr(seals, "refusal", lambda *_: "")


def begun_tasks_not_noted(patch: pytest.MonkeyPatch) -> None:
    """A host keeps nothing outside of its data directory, but the word of its era."""
    patch.setattr(begun_tasks, "note", lambda *_: "")


def every_era_taken(patch: pytest.MonkeyPatch) -> None:
    """The hub has a rebooted host start what may have begun there before."""
    patch.setattr(NodeCalls, "_may_be_earlier", lambda *_: False)


def never_told_of_an_earlier_era(patch: pytest.MonkeyPatch) -> None:
    """A rebooted host knows what has never begun, as far as the hub is concerned."""
    take: Any = LeftTasks.take_end
    patch.setattr(LeftTasks, "take_end", lambda left, *told: take(left, *told[:-1], None))


def answered_by_the_wrong_call(patch: pytest.MonkeyPatch) -> None:
    """An answer that comes twice answers the next call, too."""
    take = NodeCalls.take_answer

    def take_twice(calls: Any, number: int, node: Any, message: Any) -> None:
        take(calls, number, node, message)
        take(calls, number + 1, node, message)

    patch.setattr(NodeCalls, "take_answer", take_twice)


def calls_not_repeated(patch: pytest.MonkeyPatch) -> None:
    """The hub sends a call once: one that was lost with a connection is lost for good."""
    patch.setattr(NodeCalls, "note_silence", lambda *_: None)


@pytest.mark.parametrize(
    "break_it",
    [
        no_durable_key,
        another_key_each_time,
        no_mark,
        locks_freed_early,
        locks_not_taken_back,
        end_told_early,
        late_submission_taken,
        silent_means_over,
        old_directory_taken,
        begun_tasks_not_noted,
        every_era_taken,
        never_told_of_an_earlier_era,
        answered_by_the_wrong_call,
        calls_not_repeated,
    ],
)
def test_what_is_broken_on_purpose_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    break_it(monkeypatch)
    first = FIRST.get(break_it.__name__, 0)
    for case in range(first, first + CASES_MAX):
        try:
            found = simulated_hosts.play(SEED, case, tmp_path / str(case)).agenda.problems
        except Exception as error:  # noqa: BLE001 - an end that nobody expects is found, too
            found = [repr(error)]
        if found:
            print(f"{break_it.__name__} is found by case {case}: {found[0]}")
            return
    pytest.fail(f"{CASES_MAX} worlds have found nothing")
