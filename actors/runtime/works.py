"""What a component has under way in slices: generators that yield when others may have their turn.

The generator says how much fits into a slice, in steps and not in milliseconds: a test takes the
same slices as a busy machine. A slice takes a few milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...storage import errors

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from ...transport.messages import Message

Work = Generator[Any, None, "Message | None"]
"""Work that answers a request by itself, or by the message that it returns."""


class _UnderWay(NamedTuple):
    """Work that has not ended, and the request that it is done for."""

    work: Work
    envelope: Envelope | None
    outlives_asker: bool


class Works:
    """What the component ``name`` has under way. The works take turns, one slice each."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.under_way: deque[_UnderWay] = deque()

    def begin(self, work: Work, envelope: Envelope | None, *, outlives_asker: bool) -> None:
        """Take the first slice; the others stand behind all other work."""
        self._take(_UnderWay(work, envelope, outlives_asker))

    def go_on(self, now: float) -> None:
        """Take one slice of the work that has waited longest, if there is any."""
        if not self.under_way:
            return
        one = self.under_way.popleft()
        deadline = None if one.envelope is None or one.outlives_asker else one.envelope.deadline
        if one.envelope is not None and deadline is not None and deadline < now:
            one.work.close()
            one.envelope.refuse(
                errors.DeadlineError("the request was worked at until its deadline")
            )
        else:
            self._take(one)

    def forget_peer(self, peer: bytes) -> None:
        """End what is done for this peer alone: it is gone."""
        kept = deque[_UnderWay]()
        for one in self.under_way:
            if one.outlives_asker or one.envelope is None or one.envelope.peer != peer:
                kept.append(one)
            else:
                one.work.close()
        self.under_way = kept

    def _take(self, one: _UnderWay) -> None:
        try:
            next(one.work)
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
            self.under_way.append(one)
