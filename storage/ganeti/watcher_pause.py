"""The file that says until when Ganeti's watcher is to do nothing: seconds since the epoch.

Source: Ganeti 3.0, ``watcher.pause`` in its data directory.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

from .. import errors
from ..disk import documents

NAME = "watcher.pause"
"""Of the file, in the data directory."""

UNTIL_MAX = 253_402_300_799
"""The last second of the year 9999, in seconds since the epoch."""


def write(path: Path, until: float | None) -> None:
    """Store the end of the pause, durably; None ends it. A part of a second is left out.

    Raises `StorageError`, or `BadRequestError` for a time that no calendar has.
    """
    if until is None:
        with documents.storage_errors(path):
            path.unlink(missing_ok=True)
            documents.flush_directory(path.parent)
        return
    if not 0 <= until <= UNTIL_MAX:
        text = f"until: expected seconds since the epoch, up to {UNTIL_MAX}, got {until}"
        raise errors.BadRequestError(text)
    documents.replace(path, b"%d\n" % until, flush=True)


def read(path: Path, now: float) -> float | None:
    """The end of the pause; None: there is none, or it is over by ``now``, or it is no number."""
    data = None
    with contextlib.suppress(errors.StorageError):
        data = documents.read(os.fspath(path))
    try:
        until = math.nan if data is None else float(data)
    except ValueError:
        return None
    if not now <= until <= UNTIL_MAX:
        return None
    return int(until) if until.is_integer() else until
