"""Which tasks have begun on this host, kept where a copy of the data directory does not reach.

How it works. The run directory is on a memory file system, so a file there lives as long as the
host runs, and nobody puts it back. It begins with the host's era, a random word, and has a byte for
each id of the queue: set before the task of that id begins, when that is durable. So the data
directory is never behind the file, unless it is an older copy. Where the file is gone (a reboot, a
cleaned folder), a new era begins, and the master hears of it: what may have begun in an earlier era
does not start in this one. That holds for a task that waits in the queue, too: the data directory
cannot say whether it is a copy in which the task still waits.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec

from .. import errors
from ..disk import documents

if TYPE_CHECKING:
    from pathlib import Path

    from ..disk.paths import Places

_WORD_BYTES = 16
_HEAD_BYTES = 128
_BEGUN = b"x"


class Era(msgspec.Struct, frozen=True):
    """The present one. ``last_id``: the highest id of a task that has begun in it; 0: none."""

    word: str
    last_id: int = 0


def path_of(places: Places) -> Path:
    """Where the file is."""
    return places.run / "begun"


def era(places: Places, directory: str) -> Era:
    """The era of the host whose data directory has this identity; a new one if there is none."""
    try:
        with path_of(places).open("rb") as file:
            head, size = file.read(_HEAD_BYTES), os.fstat(file.fileno()).st_size
    except OSError:
        return renew(places, directory)
    word = head[: 2 * _WORD_BYTES].decode("ascii", "replace")
    if head != _head(word, directory) or places.data in places.run.parents:
        return renew(places, directory)
    return Era(word, size - _HEAD_BYTES)


def renew(places: Places, directory: str) -> Era:
    """Begin a new era. Without a file, where none can be, it ends with the daemon."""
    word = os.urandom(_WORD_BYTES).hex()
    with contextlib.suppress(errors.StorageError):
        head = _head(word, directory)
        documents.replace(path_of(places), head, flush=False, mode=documents.SECRET_MODE)
    return Era(word)


def note(places: Places, job_id: int, era_then: str) -> str:
    """The task of this id begins now. Why it may not; empty: it may.

    ``era_then``: the word of the era in which it came; "": nobody knows.
    """
    path = path_of(places)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if era_then and os.pread(descriptor, len(era_then), 0) != era_then.encode():
            return "the host was started anew since it came: it is not known whether it began"
        place = _HEAD_BYTES + job_id - 1
        if os.pread(descriptor, 1, place) == _BEGUN:
            return "it has begun before: the data directory of the host was put back to a copy"
        os.pwrite(descriptor, _BEGUN, place)
    except OSError:
        # The memory is full: the next daemon begins a new era.
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
    return ""


def _head(word: str, directory: str) -> bytes:
    return f"{word} {directory}".encode()[: _HEAD_BYTES - 1].ljust(_HEAD_BYTES - 1) + b"\n"
