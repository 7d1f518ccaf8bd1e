"""Whether the rules in force let the next opcode of a running job start.

News of other rules comes to `JobActor._receive` (`GateChanged`), which sets `is_doubted`.
"""

from __future__ import annotations

from ...storage import errors
from ...storage.queue_files import job_files
from ...transport import messages
from .conversation import Conversation
from .running_job import RunningJob


class ReturnedError(Exception):
    """The job goes back to the queue before its opcode; the text says why."""


class JobRejectedError(Exception):
    """A filter rule, named in the text, rejects the job, which has executed nothing."""


class OpcodeGate:
    """The rules under which the job was chosen, and those of which it knows since."""

    def __init__(
        self,
        running: RunningJob,
        chosen: messages.ChosenUnder,
        daemon: Conversation,
        queue: str,
    ) -> None:
        self._running = running
        self._daemon = daemon
        self._queue = queue
        self.chosen = chosen
        self.is_doubted = False
        """The rules, or what they look at, may have changed since the job asked."""

    def ask(self) -> None:
        """Let the job go on only if its opcode could start now; the record of its start decides."""
        self.is_doubted = False
        asked = messages.AskGate(job_id=self._running.job.id, chosen=self.chosen)
        answer = self._daemon.try_ask(asked)
        if isinstance(answer, messages.GateAnswered):
            self.obey(answer)
        elif answer is None and self._daemon.link.is_up:
            # The daemon is there, and slow: ask again later.
            self.is_doubted = True

    def obey(self, answer: messages.GateAnswered) -> None:
        """Go on if the gate is open; else raise `ReturnedError` or `JobRejectedError`."""
        if answer.is_rejected:
            raise JobRejectedError(answer.text)
        if not answer.is_open:
            raise ReturnedError(answer.text)
        self.chosen = messages.ChosenUnder(answer.chain, self.chosen.limit)

    def obey_stored_rules(self) -> None:
        """Obey the stored rules: nobody answers, or the state is large. They are never too old."""
        from ..rules import stored_rules  # noqa: PLC0415 - costs more than a short job

        job, has_begun = self._running.job, self._running.index > 0
        while True:
            try:
                answer = stored_rules.gate(self._queue, job, self.chosen, has_begun=has_begun)
            except (errors.StorageError, errors.DataDirectoryError):
                if not job_files.is_queue_of(job_files.path(self._queue, job.id)):
                    raise
                self._daemon.rest()
                self._daemon.take_messages()
            else:
                self.obey(answer)
                return

    def note_priority(self) -> None:
        """The job has another priority: rules may look at it, so the job may not start any more."""
        self.chosen = messages.ChosenUnder(0, self.chosen.limit)
        self.is_doubted = True
