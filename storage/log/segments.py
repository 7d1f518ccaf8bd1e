"""The segments of a journal: files of checked records in one directory, numbered from 1 on.

Reads and judges them, for the queue's journal and that of the configuration alike; `Journal` in
``log/journal`` writes them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..disk import documents, quarantine

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .checked_records import AnyRecord, RecordFormat

_SUFFIX = ".journal"
_NAME = re.compile(r"([0-9]{8}|[1-9][0-9]{8,17})\.journal")
"""The names that `path_of` makes. A file of any other name is not ours."""


def path_of(directory: Path, number: int) -> Path:
    """The segment of this number."""
    return directory / f"{number:08d}{_SUFFIX}"


def numbers(directory: Path) -> list[int]:
    """The numbers of the segments, oldest first; none if there is no directory."""
    names = documents.names_in(directory)
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def paths(directory: Path) -> list[Path]:
    """The segments, oldest first; none if there is no directory."""
    return [path_of(directory, number) for number in numbers(directory)]


def replay(directory: Path, records: RecordFormat[AnyRecord]) -> Iterator[AnyRecord]:
    """Every record that counts, oldest first: up to the torn tail of each segment."""
    for path in paths(directory):
        yield from records_of(path, records)


def records_of(path: Path, records: RecordFormat[AnyRecord]) -> Iterator[AnyRecord]:
    """Every record of one segment that counts."""
    for record, _ in records.records_in(documents.read(path) or b"", path):
        yield record


def keep_copies(found: Iterable[Path], folder: str | os.PathLike[str]) -> list[str]:
    """Copy segments with records that are left out into quarantine; a text about each.

    A start deletes segments when it has written what counts in them.
    """
    texts = []
    for path in found:
        kept = quarantine.keep_copy(folder, path, name=kept_name(path))
        name = f"{path.parent.name}/{path.name}"
        texts.append(f"{name}: there are records behind a damaged one; a copy is in {kept}")
    return texts


def kept_name(path: Path) -> str:
    """The name in quarantine of a copy of this segment."""
    return f"{path.parent.name}-{path.name}"
