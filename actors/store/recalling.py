"""Makes rows from what an earlier queue has noted of files (`remembering`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...storage import errors
from ...storage.jobs import jobs
from ...storage.queue_files.remembered import Heads, Template
from .job_rows import NO_RUN, Phase
from .reconciling import Fate, Life, fate
from .row_templates import row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ...storage.queue_files.job_files import QueueDirectory
    from ...storage.queue_files.remembered import Noted
    from .job_rows import Row
    from .lazy_rows import LazyRows


class Recalled(msgspec.Struct):
    """What a start has from there: rows by id, the templates, and what is in the file.

    ``count``: jobs in the file; ``last``: the highest id.
    """

    rows: dict[int, Row] = {}
    templates: dict[int, Row] = {}
    count: int = 0
    last: int = 0


def recall(
    found: Iterable[Noted],
    directory: QueueDirectory,
    live: Collection[int],
    unread: LazyRows,
    looked_at: Callable[[int], None] = lambda _: None,
) -> Recalled:
    """The rows of those jobs in ``live`` whose files are as they were.

    ``unread`` stands for what is not noted of jobs unlike others. ``looked_at`` is called again
    and again with the number of files that were compared so far.
    """
    recalled = Recalled()
    replace, mark_of, rows = msgspec.structs.replace, directory.mark, recalled.rows
    times: dict[float | None, float | None] = {}
    texts: dict[str | None, str | None] = {}
    for page in found:
        if isinstance(page, Template):
            if (row := row_of_text(page.body)) is not None:
                recalled.templates[page.number] = row
            continue
        looked_at(recalled.count)
        recalled.count += len(page.ids)
        recalled.last = max(recalled.last, *page.ids, 0)
        marks = zip(page.inodes, page.changed, strict=True)
        if isinstance(page, Heads):
            for row, mark in zip(unread.rows_of(page), marks, strict=True):
                if row.id in live and mark_of(row.id) == mark:
                    rows[row.id] = row
            continue
        template = recalled.templates.get(page.template)
        if template is None:
            continue
        differences = zip(page.received, page.keys, page.digests, strict=True)
        for job_id, mark, (received, key, digest) in zip(page.ids, marks, differences, strict=True):
            if job_id in live and mark_of(job_id) == mark:
                rows[job_id] = replace(
                    template,
                    id=job_id,
                    received=times.setdefault(received, received),
                    key=texts.setdefault(key, key),
                    digest=texts.setdefault(digest, digest),
                )
    return recalled


def row_of_text(body: bytes) -> Row | None:
    """The row in the file of a pending job that can be a template; None if it cannot."""
    try:
        job = jobs.decode_job(body)
    except errors.StorageError:
        return None
    is_pending = fate([op.status for op in job.ops], Life.NONE) is Fate.ENQUEUE
    if not is_pending or job.livelock is not None:
        return None
    # The second of two alike shares its parameters (`row_templates`).
    row_of(job, Phase.PENDING)
    row = row_of(job, Phase.PENDING)
    # What a job has of a run is its own.
    return row if row.run is NO_RUN else None
