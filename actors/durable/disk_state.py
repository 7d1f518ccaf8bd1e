"""Whether the disk takes writes: each part of the queue that writes reports what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors

if TYPE_CHECKING:
    from collections.abc import Callable


class DiskState:
    """Read-only from the first refused write until `Ledger.retry` has gone well."""

    def __init__(self, on_refusal: Callable[[], None]) -> None:
        """``on_refusal`` is called at each refused write."""
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
        self._on_refusal()

    def refusal(self) -> errors.ReadOnlyError:
        """The answer to requests for changes while the disk refuses writes."""
        return errors.ReadOnlyError(f"the queue takes no changes now: {self._cause}")
