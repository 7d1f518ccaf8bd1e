"""Remembers what the files of pending jobs say, so that the next start need not read all of them.

How it works. While nothing else is to be done, the queue notes the pending jobs of a long queue in
the order of their ids: the mark of each file, and what its row does not share with others of its
template (`storage/queue_files/remembered`). A row counts as that of a template only if it is the
same in everything else; so what a start makes of both is what it would read. Rows that differ, and
jobs that changed since, have another mark or none, and are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...storage import errors, jobs, process_identity, settings
from ...storage.jobs import JobStatus
from ...storage.queue_files.remembered import Page, RememberedFiles, Template
from .job_table import NO_RUN, Phase, row_of
from .reconciling import Fate, Life, fate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from structlog.typing import FilteringBoundLogger

    from ...storage.queue_files.job_files import QueueDirectory
    from ...storage.queue_files.remembered import Mark
    from ...storage.settings import Places
    from .job_table import JobTable, Row
    from .ledger import Ledger

TEMPLATES_MAX = 50
"""Templates in one file: for each, the queue reads the file of a job."""

_TRIED_MAX = 500
_PAGE_JOBS = 1_000
_GARBAGE_MIN = 10_000


def files_of(places: Places) -> RememberedFiles | None:
    """The file that remembers; None if the system does not say which boot this is."""
    try:
        return RememberedFiles(places.remembered, process_identity.boot())
    except OSError:
        return None


class Recalled(msgspec.Struct):
    """What a start has from there: rows by id, the templates, and what is in the file.

    ``count``: jobs in the file; ``last``: the highest id.
    """

    rows: dict[int, Row] = {}
    templates: dict[int, Row] = {}
    count: int = 0
    last: int = 0


def recall(
    found: Iterable[Template | Page],
    directory: QueueDirectory,
    live: Collection[int],
    looked_at: Callable[[int], None] = lambda _: None,
) -> Recalled:
    """The rows of those jobs in ``live`` whose files are as they were.

    ``looked_at`` is called again and again with the number of files that were compared so far.
    """
    recalled = Recalled()
    replace, mark_of, rows = msgspec.structs.replace, directory.mark, recalled.rows
    times: dict[float | None, float | None] = {}
    texts: dict[str | None, str | None] = {}
    for page in found:
        if isinstance(page, Template):
            if (row := _row_of_text(page.body)) is not None:
                recalled.templates[page.number] = row
            continue
        looked_at(recalled.count)
        recalled.count += len(page.ids)
        recalled.last = max(recalled.last, *page.ids, 0)
        template = recalled.templates.get(page.template)
        if template is None:
            continue
        marks = zip(page.inodes, page.changed, strict=True)
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


def _row_of_text(body: bytes) -> Row | None:
    """The row in the file of a pending job that can be a template; None if it cannot."""
    try:
        job = jobs.decode_job(body)
    except errors.StorageError:
        return None
    is_pending = fate([op.status for op in job.ops], Life.NONE) is Fate.ENQUEUE
    if not is_pending or job.livelock is not None:
        return None
    # The second of two alike shares its parameters (`job_table`).
    row_of(job, Phase.PENDING)
    row = row_of(job, Phase.PENDING)
    # What a job has of a run is its own.
    return row if row.run is NO_RUN else None


class _Known(NamedTuple):
    number: int
    row: Row
    shared: object
    """Kept, so that nothing else gets its place in memory."""


class Remembering:
    """Notes the pending jobs of one queue."""

    def __init__(
        self,
        table: JobTable,
        ledger: Ledger,
        files: RememberedFiles | None,
        log: FilteringBoundLogger,
    ) -> None:
        """``files``: None if the system does not say which boot this is."""
        self._table = table
        self._ledger = ledger
        self._files = files
        self._log = log
        self._cursor = self._count = self._number = self._tried = 0
        self._known: dict[int, list[_Known]] = {}
        self._is_under_way = False

    def begin(self, recalled: Recalled) -> None:
        """Go on behind what a start has recalled, if most of that is of use."""
        if recalled.count > 2 * len(recalled.rows) + settings.REMEMBERED_JOBS_MIN:
            return
        for number, row in recalled.templates.items():
            self._note_template(number, row, row.shared_inputs)
        self._cursor, self._count = recalled.last, recalled.count

    @property
    def is_due(self) -> bool:
        """Whether there are jobs to be noted, and all have files."""
        if self._files is None or len(self._table) < settings.REMEMBERED_JOBS_MIN:
            return False
        ledger = self._ledger
        if ledger.has_unwritten or ledger.is_read_only or ledger.is_doubtful:
            return False
        return self._cursor < self._table.last_id

    @property
    def patience_seconds(self) -> float:
        """How long nothing has to come before there is time for it."""
        if self._is_under_way:
            return settings.FILES_REST_SECONDS
        return settings.REMEMBER_PATIENCE_SECONDS

    def work(self, is_enough: Callable[[], bool]) -> None:
        """Note jobs until there are no more; ``is_enough`` is asked after each thousand."""
        files = self._files
        assert files is not None
        try:
            is_garbage = self._count > 2 * len(self._table) + _GARBAGE_MIN
            if self._cursor == 0 or is_garbage or not files.has_begun:
                self._forget()
                files.begin()
            while self.is_due:
                self._is_under_way = self._note_page(files)
                if not self._is_under_way or is_enough():
                    return
            self._is_under_way = False
        except errors.StorageError as error:
            # The next start reads the files, as always.
            self._log.warning("files are not remembered for the next start", error=error.text)
            self._files = None

    def _forget(self) -> None:
        self._cursor = self._count = self._number = self._tried = 0
        self._known.clear()

    def _note_page(self, files: RememberedFiles) -> bool:
        """Note some jobs; False if the next one's file has just changed, and has to rest first."""
        rows, has_more = self._table.pending_after(self._cursor, _PAGE_JOBS)
        last = rows[-1].id if has_more else self._table.last_id
        now, rest = files.now(), round(settings.MARK_REST_SECONDS * 10**9)
        is_early = False
        new: list[Template] = []
        pages: dict[int, Page] = {}
        for row in rows:
            number = self._template_of(row, new)
            mark = None if number is None else self._ledger.directory.mark(row.id)
            if number is None or mark is None or mark[1] >= now + rest:
                # Changed in the future: somebody has set the clock.
                continue
            if mark[1] > now - rest:
                last, is_early = row.id - 1, True
                break
            page = pages.get(number)
            if page is None:
                page = pages[number] = Page(number, [], [], [], [], [], [])
            _add(page, row, mark)
        files.append([*new, *pages.values()])
        self._count += sum(len(page.ids) for page in pages.values())
        self._cursor = last
        return not is_early

    def _template_of(self, row: Row, new: list[Template]) -> int | None:
        """The number of the row's template; ``new`` gets one that was made for it. None: none."""
        if row.shared_inputs is None or row.status is not JobStatus.QUEUED:
            return None
        if row.reason or row.limits or self._ledger.in_memory(row.id) is not None:
            return None
        for known in self._known.get(id(row.shared_inputs), ()):
            if _is_alike(row, known.row):
                return known.number
        if self._number >= TEMPLATES_MAX or self._tried >= _TRIED_MAX:
            return None
        self._tried += 1
        body = self._ledger.directory.read(row.id)
        template = None if body is None else _row_of_text(body)
        if body is None or template is None or row != template:
            return None
        new.append(Template(self._number, body))
        self._note_template(self._number, template, row.shared_inputs)
        return self._number - 1

    def _note_template(self, number: int, row: Row, shared: object) -> None:
        self._known.setdefault(id(shared), []).append(_Known(number, row, shared))
        self._number = max(self._number, number + 1)


def _add(page: Page, row: Row, mark: Mark) -> None:
    page.ids.append(row.id)
    page.inodes.append(mark[0])
    page.changed.append(mark[1])
    page.received.append(row.received)
    page.keys.append(row.key)
    page.digests.append(row.digest)


def _is_alike(row: Row, template: Row) -> bool:
    """Whether the row differs from the template's in nothing but what a page has."""
    other = msgspec.structs.replace(
        template, id=row.id, received=row.received, key=row.key, digest=row.digest
    )
    return other == row
