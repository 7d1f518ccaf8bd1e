"""Whether the disk takes writes: each part of the queue that writes reports what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.disk import reserve

if TYPE_CHECKING:
    from collections.abc import Callable


SHORT = "the disk is full, and what is left is kept for removing jobs"


class DiskState:
    """Read-only from the first refused write until `Ledger.retry` has gone well.

    A disk that was full takes writes again without its reserve, and then only what gives space
    back: the queue is *short* of space, and takes no new work, until it has its reserve again.
    """

    def __init__(self, kept: reserve.Reserve, on_refusal: Callable[[], None]) -> None:
        """``on_refusal`` is called at each refused write."""
        self.reserve = kept
        self._on_refusal = on_refusal
        self._cause = ""
        self.is_read_only = False

    def refuse_writes(self, error: errors.StorageError) -> None:
        """Take no changes from now on, because of this error."""
        self.is_read_only = True
        # That the outcome of one change is unknown concerns no other request.
        self._cause = str(
            error.__cause__ if isinstance(error, errors.OutcomeUnknownError) else error
        )
        if reserve.is_full(error):
            self.reserve.give_up()
        self._on_refusal()

    @property
    def is_short(self) -> bool:
        """Whether the disk had no room for the reserve when that was last tried."""
        return self.reserve.is_missing

    @property
    def takes_work(self) -> bool:
        """Whether new jobs are taken, and pending ones started."""
        return not (self.is_read_only or self.is_short)

    def refusal(self) -> errors.StorageError:
        """The answer to requests for changes while the disk refuses writes, or is short."""
        if not self.is_read_only:
            return errors.DiskFullError(f"the queue takes no new jobs: {SHORT}")
        return errors.ReadOnlyError(f"the queue takes no changes now: {self._cause}")
