"""Answers queries for locks. All pages of an answer are of the state at its first one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.ganeti.queries.locks import LOCKS, AwaitedJob, Rows, ordered
from ...transport import messages
from ..runtime.addresses import JOB_QUEUE
from ..runtime.installed_answers import AnswerPart
from . import query_pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from ...transport.envelopes import Envelope
    from ..locks.lock_questions import LockQuestions
    from ..locks.locking import LockState
    from ..runtime.component import Runtime

    class Locks(Protocol):
        """What these answers need of the lock manager."""

        runtime: Runtime
        questions: LockQuestions


class LockQueries(AnswerPart):
    """Answers a page at a time."""

    component = "lock_manager"
    takes = (messages.QueryLocks,)

    def __init__(self, component: Locks) -> None:
        self._runtime = component.runtime
        self._questions = component.questions
        self._kept: Rows | None = None
        """What unfinished answers are made of: to list ten thousand locks takes long."""

    def take(self, envelope: Envelope, message: messages.QueryLocks) -> None:
        """Reply, for a first page when the queue has said which jobs others depend on."""
        if message.after is not None and self._kept is not None:
            self._reply(envelope, message, self._kept)
            return

        def answered(found: messages.DependenciesListed) -> None:
            awaited = [AwaitedJob(row.name, row.pending) for row in found.rows]
            self._questions.look(functools.partial(self._list, envelope, message, awaited))

        asked = messages.ListDependencies()
        self._runtime.ask(JOB_QUEUE, asked, answered, envelope.refuse, envelope.deadline)

    def _list(
        self,
        envelope: Envelope,
        message: messages.QueryLocks,
        awaited: list[AwaitedJob],
        state: LockState,
    ) -> Callable[[], None]:
        """List all in a thread beside; what is then to be done."""
        rows = ordered(state.rows(), awaited)
        return functools.partial(self._reply_or_refuse, envelope, message, rows)

    def _reply_or_refuse(
        self, envelope: Envelope, message: messages.QueryLocks, rows: Rows
    ) -> None:
        try:
            self._reply(envelope, message, rows)
        except errors.GangerError as error:
            envelope.refuse(error)

    def _reply(self, envelope: Envelope, message: messages.QueryLocks, rows: Rows) -> None:
        asked = query_pages.checked(LOCKS, message)
        page = query_pages.answered(self._runtime, asked, rows, message.after)
        self._kept = None if page.next_after is None else rows
        envelope.reply(page)
