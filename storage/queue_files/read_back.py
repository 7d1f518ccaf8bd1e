"""Reads job files back from the disk, before the segments of the journal that cover them go.

A flush that goes well proves little: the kernel may have told another program that the disk refused
a page, and ext4 takes a page for written that is not (`inodes`). What the disk has is seen by
reading it past the page cache. Needs no thread of its own and writes nothing: whoever deletes
segments calls `check` first.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from .. import errors
from ..log import records, segments
from . import job_files, replay

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence
    from pathlib import Path

    from .job_files import QueueDirectory
    from .replay import JournalContent, State

_AT_ONCE = 64
"""So many files the kernel is asked to read before the first of them is looked at."""

_NAMED_MAX = 5


def check(directory: QueueDirectory, old: Sequence[Path], left_out: Container[int]) -> None:
    """Raise `StorageError` unless the disk has, in files, each state that ``old`` segments have.

    Also if a file cannot be read, with the reason: without descriptors, say.
    Call it after a flush. ``left_out`` are jobs that a later segment covers.
    """
    read = (segments.records_of(path, records.RECORDS) for path in old)
    said = replay.content_of(itertools.chain.from_iterable(read))
    check_content(directory, said, left_out)


def check_content(
    directory: QueueDirectory,
    said: JournalContent,
    left_out: Container[int],
    purged: Container[int] = (),
) -> None:
    """As `check`, of segments that say this.

    ``purged``: the jobs that go for good. Their files may go meanwhile, later than they are here.
    """
    missed = missing(directory, said, left_out)
    found = (job_id for job_id in missed if job_id not in purged)
    names = [f"job-{job_id}" for job_id in itertools.islice(found, _NAMED_MAX)]
    if names:
        more = " and others" if next(found, None) is not None else ""
        text = f"the disk does not have what was written: {', '.join(names)}{more}"
        raise errors.StorageError(text)


def missing(
    directory: QueueDirectory, said: JournalContent, left_out: Container[int]
) -> Iterator[int]:
    """The jobs whose files on the disk are damaged, or older than the journal. `StorageError`."""
    states = [one for one in said.states.items() if one[0] not in left_out]
    for start in range(0, len(states), _AT_ONCE):
        some = states[start : start + _AT_ONCE]
        for job_id, _ in some:
            directory.drop_pages(job_id)
        yield from (job_id for job_id, state in some if not _has(directory, job_id, state))
    archived = [(job_id, state) for job_id, state in said.archived.items() if state is not None]
    for start in range(0, len(archived), _AT_ONCE):
        some = archived[start : start + _AT_ONCE]
        for job_id, _ in some:
            directory.drop_archived_pages(job_id)
        for job_id, state in some:
            found = _read(directory, job_id, is_archived=True)
            # A file that is missing was deleted by somebody, which is no matter of the disk.
            if found is not None and not is_as_new(found, job_id, state):
                yield job_id


def _has(directory: QueueDirectory, job_id: int, state: State) -> bool:
    """Whether the job's file has this state, or a newer one; it may move into the archive now."""
    found = _read(directory, job_id, is_archived=False)
    if found is None:
        directory.drop_archived_pages(job_id)
        found = _read(directory, job_id, is_archived=True)
    return found is not None and is_as_new(found, job_id, state)


def _read(directory: QueueDirectory, job_id: int, *, is_archived: bool) -> bytes | None:
    """What the file holds; None: there is no file. `StorageError` says why it cannot be read."""
    return directory.read_archived(job_id) if is_archived else directory.read(job_id)


def is_as_new(found: bytes, job_id: int, state: State) -> bool:
    """Whether the text of a file is this state of the job, or a newer one."""
    serial, body = state
    if found == body:
        return True
    try:
        return job_files.read_job(found, job_id).serial >= serial
    except errors.StorageError:
        return False
