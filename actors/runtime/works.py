"""What a component has under way in slices: generators that yield when others may have their turn.

The generator says how much fits into a slice, in steps and not in milliseconds: a test takes the
same slices as a busy machine. A slice takes a few milliseconds.

What cannot be cut into slices, and looks at nothing that changes, is done in a thread: the
generator yields a function, and gets what that returns. One at a time: threads of one interpreter
take turns, and many would each take a share of the turns of every dispatcher.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...storage import errors

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from ...transport.messages import Message
    from .mailbox import WorkedOut

Work = Generator[Any, Any, "Message | None"]
"""Work that answers a request by itself, or by the message that it returns.

At the end of a slice it yields a function to be called in a thread, or anything else.
"""


class _UnderWay(NamedTuple):
    """Work that has not ended, and the request that it is done for."""

    work: Work
    envelope: Envelope | None
    outlives_asker: bool

    def go_on(self, found: WorkedOut | None) -> object:
        """Take a slice, with what a thread has found; what the work yields at its end."""
        wanted: object
        if found is not None and found.error is not None:
            wanted = self.work.throw(found.error)
        else:
            wanted = self.work.send(None if found is None else found.value)
        return wanted

    def is_overdue(self, now: float) -> bool:
        """Whether nobody waits for it any more; it is ended, and its request refused."""
        if self.envelope is None or self.outlives_asker or self.envelope.deadline is None:
            return False
        if self.envelope.deadline >= now:
            return False
        self.work.close()
        self.envelope.refuse(errors.DeadlineError("the request was worked at until its deadline"))
        return True


class Works:
    """What the component ``name`` has under way. The works take turns, one slice each.

    ``in_thread`` calls a function in a thread; then call `worked_out`.
    """

    def __init__(self, name: str, in_thread: Callable[[Callable[[], Any]], None]) -> None:
        self._name = name
        self._in_thread = in_thread
        self.under_way: deque[_UnderWay] = deque()
        self._beside: deque[tuple[_UnderWay, Callable[[], Any]]] = deque()
        """What waits for a thread; the first one has it."""

    def begin(self, work: Work, envelope: Envelope | None, *, outlives_asker: bool) -> None:
        """Take the first slice; the others stand behind all other work."""
        self._take(_UnderWay(work, envelope, outlives_asker))

    def go_on(self, now: float) -> None:
        """Take one slice of the work that has waited longest, if there is any."""
        if not self.under_way:
            return
        one = self.under_way.popleft()
        if not one.is_overdue(now):
            self._take(one)

    def worked_out(self, found: WorkedOut, now: float) -> None:
        """The thread has done what it was given: begin the next, and go on with the work."""
        one, _ = self._beside.popleft()
        while self._beside and self._beside[0][0].is_overdue(now):
            self._beside.popleft()
        if self._beside:
            self._in_thread(self._beside[0][1])
        self._take(one, found)

    def forget_peer(self, peer: bytes) -> None:
        """End what is done for this peer alone: it is gone."""
        kept = deque[_UnderWay]()
        for one in self.under_way:
            if one.outlives_asker or one.envelope is None or one.envelope.peer != peer:
                kept.append(one)
            else:
                one.work.close()
        self.under_way = kept

    def _take(self, one: _UnderWay, found: WorkedOut | None = None) -> None:
        try:
            wanted = one.go_on(found)
        except StopIteration as end:
            if one.envelope is not None and end.value is not None:
                one.envelope.reply(end.value)
        except errors.GangerError as error:
            if one.envelope is None:
                raise
            one.envelope.refuse(error)
        except Exception as error:
            if one.envelope is not None:
                # Repeated, it would end the successor of this component, too.
                one.envelope.refuse(errors.RequestFatalError.of(self._name, repr(error)))
            raise
        else:
            if not callable(wanted):
                self.under_way.append(one)
                return
            self._beside.append((one, wanted))
            if len(self._beside) == 1:
                self._in_thread(wanted)
