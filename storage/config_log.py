"""The changes of the configuration in the log: what a reader of ``config.data`` has to add.

The log of the queue (``queue/journal/``) has a change until ``config.data`` has it: each segment
begins with those that it may lack (`log/logged_changes`).

Before format 2 of the log, the configuration had a journal of its own, in ``config.journal/``. It
is read before the log, and a segment of the new format then stays there: a version that does not
know the log must not begin without its changes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from . import errors
from .disk import documents, paths
from .log import segments
from .log.checked_records import RecordFormat
from .log.logged_changes import LoggedChanges
from .log.records import (
    FORMAT_VERSION,
    ConfigChanged,
    ConfigWritten,
    JobRecord,
    SegmentBegun,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_Record = SegmentBegun | ConfigChanged | ConfigWritten

RECORDS: RecordFormat[_Record] = RecordFormat(
    _Record, "journal", FORMAT_VERSION, passed_over=JobRecord
)
"""Changes of earlier versions have no answer, or no request."""


class Found(NamedTuple):
    """The changes that follow a configuration, and what else the log says."""

    changes: list[ConfigChanged]
    damaged: list[Path]
    """Segments with changes that do not count: those behind a damaged record."""

    written: int
    """``config.data`` had the changes up to this serial number; 0: the log does not say."""

    newest: int
    """The serial number after the last change in the log; 0: there was none."""

    missing: int = 0
    """The first change that the log has behind a gap, though nothing is damaged; 0: no gap."""


def changes_since(path: Path, serial: int | None) -> Found:
    """The changes that are newer than this serial number of the configuration in ``path``.

    `DataDirectoryError` if there is any, with None: there is no ``config.data``.
    """
    while (read := _read(path)) is None:
        # A segment went meanwhile: a newer one repeats what it had.
        pass
    logged, lost, where, is_torn = read
    if serial is None:
        if logged.newest is not None:
            raise errors.DataDirectoryError(_without_whole(path))
        return Found([], lost, 0, 0)
    changes: list[ConfigChanged] = []
    missing = 0
    for change in logged.changes.values():
        assert isinstance(change, ConfigChanged)
        if change.serial <= serial:
            continue
        if change.serial > serial + 1:
            if not is_torn:
                missing = change.serial
            elif where[change.serial] not in lost:
                # It is based on one that is damaged, in a segment before.
                lost.append(where[change.serial])
            break
        serial = change.serial
        changes.append(change)
    return Found(changes, lost, logged.written or 0, logged.newest or 0, missing)


def _read(path: Path) -> tuple[LoggedChanges, list[Path], dict[int, Path], bool] | None:
    """What all segments say; those with changes behind a damaged record; where each change stands.

    And whether a segment ends with bytes that are no record. None: a segment is gone by now.
    """
    logged, where = LoggedChanges(), dict[int, Path]()
    damaged: list[Path] = []
    is_torn = False
    for segment in _segments(path):
        data = documents.read(segment)
        if data is None:
            return None
        content = RECORDS.content(data, segment)
        for record in content.records:
            if not isinstance(record, SegmentBegun):
                logged.note(record)
            if isinstance(record, ConfigChanged):
                where[record.serial] = segment
        is_torn |= content.tail is not None
        if any(map(_is_change, content.left_out)):
            damaged.append(segment)
    return logged, damaged, where, is_torn


def _is_change(record: _Record) -> bool:
    return isinstance(record, ConfigChanged)


def _segments(path: Path) -> Iterator[Path]:
    yield from segments.paths(former_directory(path))
    yield from segments.paths(paths.Places(path.parent, path.parent).journal)


def _without_whole(path: Path) -> str:
    return f"{path}: there is none, but the log has changes of it; put a copy of the file back"


# ------------------------------------------------------------ the former journal


def former_directory(path: Path) -> Path:
    """Where versions before the log kept the changes."""
    return path.with_name("config.journal")


def retire_former(path: Path) -> None:
    """Have only a segment of this format in the former journal. `StorageError`.

    ``config.data`` must have its changes.
    """
    directory = former_directory(path)
    former = segments.paths(directory)
    if former and _is_of_this_format(former[-1]):
        former.pop()
    else:
        documents.make_directory(directory)
        newest = segments.numbers(directory)[-1] if former else 0
        first = RECORDS.packed(SegmentBegun(FORMAT_VERSION, 0))
        marker = segments.path_of(directory, newest + 1)
        documents.replace(marker, first, flush=True)
    for one in former:
        with documents.storage_errors(one), contextlib.suppress(FileNotFoundError):
            os.unlink(one)


def _is_of_this_format(segment: Path) -> bool:
    for record, _ in RECORDS.records_in(documents.read(segment) or b"", segment):
        return isinstance(record, SegmentBegun) and record.version == FORMAT_VERSION
    return False
