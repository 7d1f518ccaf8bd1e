"""Answers questions about all locks from a copy, in a thread beside.

To list thousands of locks takes long, and who has a question must not hold up who needs a lock, or
the components that share the lock manager's thread. All questions that wait are answered from one
copy; those that come meanwhile, from the next one.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...storage import errors
from ...transport import messages
from .locking import LockState

if TYPE_CHECKING:
    from ...storage.locks.lock_journal import Since
    from ...storage.locks.locks import LocksFile
    from ...transport.envelopes import Envelope
    from ...transport.messages import Message
    from ..runtime.component import Runtime

View = Callable[[LockState, "Since"], "Message"]
"""Makes a reply of a copy of the state, and since when each lock is held."""

_Work = Callable[[LockState, "Since"], None]


class QuestionError(Exception):
    """A question was not answered, because of an error of ours."""


class LockQuestions:
    """The questions that wait for an answer."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: list[_Work] = []
        self._finished: list[Callable[[], None]] = []
        self._is_at_work = False

    def reply(self, envelope: Envelope, view: View) -> None:
        """Answer the request with this view."""

        def work(state: LockState, since: Since) -> None:
            try:
                envelope.reply(view(state, since))
            except errors.GangerError as error:
                envelope.refuse(error)

        self._waiting.append(work)

    def look(self, then: Callable[[LockState], Callable[[], None]]) -> None:
        """Call ``then`` with a copy, in a thread, and later what it returns, in this one."""
        self._waiting.append(lambda state, _: self._finished.append(then(state)))

    def begin(self, snapshot: Callable[[], LocksFile], since: Since) -> None:
        """Answer the questions that wait, unless others are being answered: then later."""
        if not self._waiting or self._is_at_work:
            return
        due, self._waiting = self._waiting, []
        copied = {owner: dict(times) for owner, times in since.items()}
        self._is_at_work = True
        self._runtime.in_thread(functools.partial(_answer, snapshot(), copied, due))

    def answered(self, error: str | None) -> None:
        """The thread has answered: do what is left. Raises `QuestionError` if it failed."""
        if error is not None:
            raise QuestionError(error)
        self._is_at_work = False
        finished, self._finished = self._finished, []
        for rest in finished:
            rest()


def _answer(file: LocksFile, since: Since, due: list[_Work]) -> messages.QuestionsAnswered:
    try:
        state, _ = LockState.restore(file)
        for work in due:
            work(state, since)
    except Exception:  # noqa: BLE001 - the lock manager ends with it, and the request is refused
        return messages.QuestionsAnswered(traceback.format_exc())
    return messages.QuestionsAnswered()
