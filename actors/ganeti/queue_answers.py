"""What the queue answers for Ganeti's tools: queries for jobs, and waits for a change of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...transport import messages
from ..runtime.installed_answers import AnswerPart
from .change_waits import ChangeWaits
from .job_queries import JobQueries

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime
    from ..store.job_store import JobStore

    class Queue(Protocol):
        """What these answers need of the queue."""

        runtime: Runtime
        store: JobStore

        @property
        def catch_up(self) -> Callable[[int], None]:
            """Takes in a newer state of a job's file."""


class QueueAnswers(AnswerPart):
    """Answers in the queue's turns."""

    component = "job_queue"
    takes = (messages.QueryJobs, messages.AwaitJobChange, messages.JobWaitsDue)

    def __init__(self, component: Queue) -> None:
        self.queries = JobQueries(component.runtime, component.store, component.catch_up)
        self.waits = ChangeWaits(component.runtime, component.store, self.queries)

    def take(
        self,
        envelope: Envelope,
        message: messages.QueryJobs | messages.AwaitJobChange | messages.JobWaitsDue,
    ) -> None:
        match message:
            case messages.QueryJobs():
                envelope.reply(self.queries.page(message))
            case messages.AwaitJobChange():
                self.waits.open(envelope, message)
            case messages.JobWaitsDue():
                self.waits.ring()

    def turn_ended(self) -> None:
        """Answer those whose jobs have changed and whose time is up."""
        self.waits.turn_ended()
