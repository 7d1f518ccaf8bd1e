"""Whether a user can mean the lock that a command names: checks before anything is sent."""

from __future__ import annotations

from ..storage import errors, wording
from ..storage.locks.locks import LockLevel


def check_one_lock(text: str, named: str) -> None:
    """Raise `UsageError`, which begins with ``named``, for what looks like several locks."""
    if "," in text or len(text.split()) > 1:
        raise errors.UsageError(f"{named}: expected one lock, such as node/n7, got {text!r}")


def check_lock(level: str, name: str, named: str) -> None:
    """Raise `UsageError`, which begins with ``named``, for a lock that no job could mean."""
    known = [str(one) for one in LockLevel if one is not LockLevel.CONFIG]
    if level not in known:
        meant = wording.likeness(level.lower(), known)
        text = f"{named}: there is no level {wording.shown(level)}{meant}"
        raise errors.UsageError(f"{text}; the levels are {', '.join(known)}")
    if "*" in name and name != "*":
        text = f"{named}: {wording.shown(name)} is no pattern: {level}/* is the whole level"
        raise errors.UsageError(text)
