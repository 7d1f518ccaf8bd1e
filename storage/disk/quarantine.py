"""Files that are put aside: those that cannot be read, and copies of damaged journals.

They lie in ``queue/quarantine``, flushed, and nothing deletes them.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from . import documents

if TYPE_CHECKING:
    from collections.abc import Iterator

    Path = str | os.PathLike[str]


def move(quarantine: Path, file: Path, *, name: str = "") -> str:
    """Move a file durably into quarantine; returns its new path. `StorageError`."""
    target = _free_path(quarantine, name or os.path.basename(file))
    with documents.storage_errors(file):
        os.rename(file, target)
        # Flush the new name first: a power loss may leave two names, but never none.
        documents.flush_directory(quarantine)
        documents.flush_directory(os.path.dirname(file))
    return target


def keep_copy(quarantine: Path, file: Path, *, name: str = "") -> str:
    """Copy a file durably into quarantine, unless a copy lies there; its path. `StorageError`."""
    return keep(quarantine, name or os.path.basename(file), documents.read(file) or b"")


def keep(quarantine: Path, name: str, data: bytes) -> str:
    """As `keep_copy`, of these bytes under this name."""
    known = copy_of(quarantine, name, data)
    if known is not None:
        return known
    target = _free_path(quarantine, name)
    documents.replace(target, data, flush=True)
    return target


def copy_of(quarantine: Path, name: str, data: bytes) -> str | None:
    """The path of a file in quarantine that had this name and has this content."""
    for found in documents.names_in(quarantine):
        path = f"{quarantine}/{found}"
        if found.startswith(name) and os.path.isfile(path) and documents.read(path) == data:
            return path
    return None


def _free_path(quarantine: Path, name: str) -> str:
    with documents.storage_errors(quarantine):
        documents.make_directory(quarantine)
        documents.flush_directory(os.path.dirname(quarantine))
    paths = (f"{quarantine}/{name}{suffix}" for suffix in _suffixes())
    return next(path for path in paths if not os.path.lexists(path))


def _suffixes() -> Iterator[str]:
    yield ""
    yield from (f".{number}" for number in itertools.count(2))
