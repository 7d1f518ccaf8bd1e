"""Ends what the process of a dead job has left running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...transport import messages
from ..processes import sessions

if TYPE_CHECKING:
    from ...storage.alive.process_identity import ProcessIdentity
    from .children import Child


def end(child: Child, identity: ProcessIdentity) -> messages.LeftOverEnded:
    """End the processes that a dead one left running. May take long, so it runs in a thread."""
    ended: list[int] = []
    error = None
    try:
        ended = sessions.end_left_over(
            identity, was_seen_ending=child.was_watched, is_own=not child.is_adopted
        )
    except OSError as refused:
        error = str(refused)
    return messages.LeftOverEnded(
        job_id=child.job_id, lock_file=child.lock_file, ended=ended, error=error
    )
