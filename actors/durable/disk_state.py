"""Whether the disk takes writes: each part of the queue that writes reports what was refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.disk import reserve

if TYPE_CHECKING:
    from collections.abc import Callable


SHORT = f"the disk is full, and what is left is kept for removing jobs; {reserve.REMEDY}"


_STATES_OF_CANCELED = 3
"""Those with which a process ends its canceled job, and one by the queue if the file lacks them."""

_ADDED_BY_END_BYTES = 512
"""Times, results and the like, which such a state has more than the one before."""


def bytes_of_cancelation(body: bytes) -> int:
    """What the states take with which a job of this text ends when it is canceled."""
    return _STATES_OF_CANCELED * (len(body) + _ADDED_BY_END_BYTES)


class DiskState:
    """Read-only from the first refused write until `Ledger.retry` has gone well.

    A disk that was full takes writes again without its reserve, and then only what gives space
    back: the queue is *short* of space, and takes no new work, until it has its reserve again. So
    it is when somebody sees that nothing is free, though no write was refused yet.
    """

    def __init__(
        self,
        kept: reserve.Reserve,
        on_refusal: Callable[[], None],
        to_come: Callable[[], int] = lambda: 0,
    ) -> None:
        """``on_refusal`` is called at each refused write, and when the disk is seen to be full.

        ``to_come`` says how many bytes the queue will write that it has promised.
        """
        self.reserve = kept
        self._on_refusal = on_refusal
        self._to_come = to_come
        self._cause = ""
        self._was_full = False
        self._room = math.inf
        self._has_looked = False
        """Whether this turn of the queue has looked whether anything is free."""
        self.is_read_only = False
        self._decide()

    def _decide(self) -> None:
        """Work out what each request asks, when it may have changed."""
        self.is_short = self.reserve.is_missing or self._room < 0
        """Whether the disk had no room, for the reserve or at all, when that was last tried."""
        self.takes_work = not (self.is_read_only or self.is_short)
        """Whether new jobs are taken, and pending ones started."""

    def take_writes(self) -> None:
        """Try changes again."""
        self.is_read_only = False
        self._decide()

    def refuse_writes(self, error: errors.StorageError) -> None:
        """Take no changes from now on, because of this error."""
        self.is_read_only = True
        # That the outcome of one change is unknown concerns no other request.
        self._cause = str(
            error.__cause__ if isinstance(error, errors.OutcomeUnknownError) else error
        )
        self._was_full = reserve.is_full(error)
        if self._was_full:
            self.reserve.give_up()
        self._decide()
        self._on_refusal()

    @property
    def is_full(self) -> bool:
        """Whether the disk refuses writes because it is full: a purge is taken all the same."""
        return self.is_read_only and self._was_full

    def look(self) -> None:
        """Look whether anything is free beside what the queue has promised to write."""
        self._has_looked = True
        was_short, self._room = self.is_short, self.reserve.room(self._to_come())
        if self._room < self.reserve.size:
            self.reserve.look()
        self._decide()
        if self.is_short and not was_short:
            self._on_refusal()

    def look_once(self) -> None:
        """As `look`, unless this turn has looked: what a turn writes is small."""
        if not self._has_looked:
            self.look()

    def end_turn(self, *, has_written: bool) -> None:
        """A turn ends; one that has written looks, after its replies: they need not wait for it."""
        if has_written:
            self.look_once()
        self._has_looked = False

    def has_room_for(self, size: int) -> bool:
        """Whether the disk is not full with so many bytes more, as the last `look` has seen it."""
        return self._room >= size

    def make_reserve(self, to_come: int = 0) -> bool:
        """Make the reserve if there is room for it; whether it is there, or not missed."""
        is_there = self.reserve.make(to_come)
        self._decide()
        return is_there

    def has_room_again(self) -> bool:
        """Make the reserve again; False: there is no room for it, or at all."""
        self.look()
        return self._room >= 0 and self.make_reserve(self._to_come())

    def refusal(self, what: str = "the queue takes no new jobs") -> errors.StorageError:
        """The answer to requests for changes while the disk refuses writes, or is short.

        ``what`` is not done while it is short.
        """
        if not self.is_read_only:
            return errors.DiskFullError(f"{what}: {SHORT}")
        then = "it goes on by itself when the disk takes writes again"
        what = reserve.REMEDY if self._was_full else then
        return errors.ReadOnlyError(f"the queue takes no changes now: {self._cause}; {what}")
