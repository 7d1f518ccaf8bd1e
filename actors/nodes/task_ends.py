"""Ends tasks on a node whose jobs have lost their processes, when the master asks for that.

A task is a job of this daemon. It is killed, and the master hears of it when it has ended, with all
that it has started. A task that never came is not started any more, when its submission comes late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...transport import messages
from ..runtime.addresses import JOB_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..runtime.component import Runtime

KEYS_MAX = 10_000
"""So many of the last keys are remembered of which no task may start any more."""


class TaskEnds:
    """The keys of the tasks that must end. ``say`` sends the master a reply to this number."""

    def __init__(
        self, runtime: Runtime, say: Callable[[messages.LeftTaskEnded, int], object]
    ) -> None:
        self._runtime = runtime
        self._say = say
        self._keys: dict[str, None] = {}
        self._asked: dict[str, int] = {}
        """The number under which the master waits for the end of each."""
        self._killed: set[str] = set()
        """Those that ran, or waited, when they were killed."""
        self._submitting: dict[str, int] = {}
        """The submissions that the queue has not answered, each with its handle."""

    def note_submission(self, key: str, handle: int) -> None:
        """This submission is on its way to the queue. `JobStateError`: it comes too late."""
        if key in self._keys:
            raise errors.JobStateError("the task was ended before it began")
        self._submitting[key] = handle

    def note_answer(self, handle: int) -> None:
        """The queue has answered a submission: now its job can be found."""
        for key, number in list(self._submitting.items()):
            if number == handle:
                self._forget_submission(key)

    def forget_submissions(self) -> None:
        """The queue was replaced."""
        for key in list(self._submitting):
            self._forget_submission(key)

    def _forget_submission(self, key: str) -> None:
        del self._submitting[key]
        if key in self._asked:
            self._find(key)

    def end(self, key: str, number: int) -> None:
        """The master asks, perhaps again: then the former number does not count any more."""
        is_new = key not in self._asked
        self._asked[key] = number
        self._keys[key] = None
        if len(self._keys) > KEYS_MAX:
            del self._keys[next(iter(self._keys))]
        if is_new and key not in self._submitting:
            self._find(key)

    def _find(self, key: str) -> None:
        def found(known: messages.JobsFound) -> None:
            ids = [job_id for one in known.found for job_id in one]
            if ids:
                self._kill(key, ids[-1])
            else:
                self._answer(key, existed=False)

        request = messages.FindJobs(names=[key])
        self._runtime.ask(JOB_QUEUE, request, found, lambda _: self._later(key))

    def _kill(self, key: str, job_id: int) -> None:
        def told(outcome: messages.CancelOutcome) -> None:
            if outcome.accepted:
                self._killed.add(key)
            self._await(key, job_id)

        request = messages.CancelJob(id=job_id, kill=True)
        self._runtime.ask(JOB_QUEUE, request, told, lambda _: self._await(key, job_id))

    def _await(self, key: str, job_id: int, values: bytes | None = None) -> None:
        """Wait for the end; if it does not come, kill again: the request may have missed it."""

        def awaited(found: messages.JobAwaited) -> None:
            if found.is_final:
                self._answer(key)
            elif values is None:
                self._await(key, job_id, found.values)
            else:
                self._kill(key, job_id)

        def refused(error: errors.GangerError) -> None:
            if isinstance(error, errors.ArchivedJobError):
                self._answer(key)
            else:
                self._later(key)

        request = messages.AwaitJobChange(
            id=job_id, fields=["status"], values=values, seconds=settings.KILL_SECONDS
        )
        self._runtime.ask(JOB_QUEUE, request, awaited, refused)

    def _later(self, key: str) -> None:
        due = messages.TaskEndDue(key=key)
        self._runtime.later(settings.DISK_RETRY_SECONDS, due)

    def look_again(self, key: str) -> None:
        """The queue could not answer before."""
        if key in self._asked:
            self._find(key)

    def _answer(self, key: str, *, existed: bool = True) -> None:
        was_killed = key in self._killed
        self._killed.discard(key)
        reply = messages.LeftTaskEnded(existed=existed, was_killed=was_killed)
        self._say(reply, self._asked.pop(key))
