"""Answers queries for locks. All pages of an answer are of the state at its first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.queries.locks import LOCKS, AwaitedJob, Rows, ordered
from ...transport import messages
from ..runtime import query_pages
from ..runtime.addresses import JOB_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...transport.envelopes import Envelope
    from ..runtime.runtime import Runtime
    from .locking import LockView


class LockQueries:
    """Answers a page at a time; ``views`` lists the locks, in natural order."""

    def __init__(self, runtime: Runtime, views: Callable[[], list[LockView]]) -> None:
        self._runtime = runtime
        self._views = views
        self._kept: Rows | None = None
        """What unfinished answers are made of: to list ten thousand locks takes long."""

    def answer(self, envelope: Envelope, message: messages.QueryLocks) -> None:
        """Reply, for a first page when the queue has said which jobs others depend on."""
        if message.after is not None and self._kept is not None:
            self._reply(envelope, message, self._kept)
            return

        def answered(found: messages.DependenciesListed) -> None:
            awaited = [AwaitedJob(row.name, row.pending) for row in found.rows]
            self._reply(envelope, message, ordered(self._views(), awaited))

        asked = messages.ListDependencies()
        self._runtime.ask(JOB_QUEUE, asked, answered, envelope.refuse, envelope.deadline)

    def _reply(self, envelope: Envelope, message: messages.QueryLocks, rows: Rows) -> None:
        page = query_pages.answered(self._runtime, LOCKS, rows, message)
        self._kept = None if page.next_after is None else rows
        envelope.reply(page)
