"""How much of the disk a data directory takes, and which part of it how much (`DiskUse`).

The archive may have a million files, so a folder of it is measured again only when its time or that
of its spool has changed: nothing in it is written in place.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from ..disk import documents, reserve
from ..disk.disk_parts import DiskUse
from ..disk.paths import RESERVE
from . import spool

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ..disk.paths import Places

_FILES_AT_ONCE = 500
_BLOCK_BYTES = 512
_SETTLED_NANOSECONDS = 2_000_000_000
"""A folder that was changed later than this may change again without another time."""


class DiskMeter:
    """Measures one queue directory, again and again."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._archived: dict[str, tuple[tuple[int, int], int]] = {}

    def measuring(self) -> Generator[None, None, DiskUse]:
        """Measure; yields when others may have their turn. `StorageError`."""
        places = self._places
        output = yield from _total(spool.folder(places.queue))
        archive = 0
        known, self._archived = self._archived, {}
        for name in documents.names_in(places.archive):
            archive += yield from self._folder(f"{places.archive}/{name}", known)
        journal = yield from _total(os.fspath(places.journal))
        jobs = yield from _total(os.fspath(places.queue), _is_no_reserve)
        log = yield from _total(os.fspath(places.data), _is_log)
        other = yield from _total(os.fspath(places.data), lambda name: not _is_log(name))
        other += yield from _total(os.fspath(places.archive_index))
        free, total = reserve.space_at(places.queue)
        return DiskUse(
            free=free,
            total=total,
            jobs=jobs,
            output=output,
            archive=archive,
            journal=journal,
            log=log,
            other=other,
        )

    def _folder(
        self, path: str, known: dict[str, tuple[tuple[int, int], int]]
    ) -> Generator[None, None, int]:
        changed = _changed(path), _changed(spool.folder(path))
        last = known.get(path)
        if last is not None and last[0] == changed:
            size = last[1]
        else:
            size = yield from _total(path)
            size += yield from _total(spool.folder(path))
        if max(changed) < time.time_ns() - _SETTLED_NANOSECONDS:
            self._archived[path] = changed, size
        return size


def _changed(folder: str) -> int:
    """When the names in the folder changed last, in nanoseconds; 0: there is none."""
    with contextlib.suppress(OSError):
        return os.stat(folder).st_mtime_ns
    return 0


def _is_log(name: str) -> bool:
    # Also one that was put aside, such as daemon.log.1.gz.
    return name.startswith(("daemon.log", "daemon.out"))


def _is_no_reserve(name: str) -> bool:
    return not name.startswith(RESERVE)


def _total(
    folder: str, is_meant: Callable[[str], bool] = lambda _: True
) -> Generator[None, None, int]:
    """The bytes of the plain files in the folder itself that are meant, by their names."""
    total = 0
    for number, size in enumerate(_sizes(folder, is_meant), 1):
        total += size
        if number % _FILES_AT_ONCE == 0:
            yield
    return total


def _sizes(folder: str, is_meant: Callable[[str], bool]) -> Iterator[int]:
    with (
        documents.storage_errors(folder),
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(folder) as entries,
    ):
        for entry in entries:
            if not is_meant(entry.name):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if not entry.is_dir(follow_symlinks=False):
                    yield status.st_blocks * _BLOCK_BYTES
