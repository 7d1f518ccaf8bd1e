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

from ...storage import settings
from ...storage.alive import process_identity
from ...storage.jobs.jobs import JobStatus
from ...storage.queue_files.looks_aside import Look
from ...storage.queue_files.remembered import Heads, Page, RememberedFiles, Template
from ...transport import messages
from .job_rows import Derived
from .recalling import row_of_text

if TYPE_CHECKING:
    from ...storage.disk.paths import Places
    from ...storage.jobs.job_headers import JobHeader
    from ...storage.queue_files.remembered import Mark, Noted
    from ...transport.messages import Message
    from ..durable.ledger import Ledger
    from ..runtime.runtime import Runtime
    from .job_rows import Row
    from .job_table import JobTable
    from .recalling import Recalled

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


class _Remembered(NamedTuple):
    number: int
    row: Row
    shared: object
    """Kept, so that nothing else gets its place in memory."""


class Remembering:
    """Notes the pending jobs of one queue.

    A thread looks at their files, because a call of the file system may take long
    (`storage/queue_files/looks_aside`). A mark counts only if its job is still as it was before the
    look.
    """

    def __init__(
        self, runtime: Runtime, table: JobTable, ledger: Ledger, files: RememberedFiles | None
    ) -> None:
        """``files``: None if the system does not say which boot this is."""
        self._runtime = runtime
        self._table = table
        self._ledger = ledger
        self._files = files
        self._log = runtime.log
        self._cursor = self._count = self._number = self._tried = 0
        self._known: dict[int, list[_Remembered]] = {}
        self._has_gone_on = False
        self._look: Look | None = None
        self._chosen: list[tuple[Row, int]] = []
        self._last = self._looks = 0
        self._records: list[Noted] = []

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
        if self._look is not None or self._files is None:
            return False
        ledger = self._ledger
        if ledger.has_unwritten or ledger.is_read_only or ledger.is_doubtful:
            return False
        if self._records:
            return True
        is_long = len(self._table) >= settings.REMEMBERED_JOBS_MIN
        return is_long and self._cursor < self._table.last_id

    @property
    def patience_seconds(self) -> float:
        """How long nothing has to come before there is time for it."""
        if self._has_gone_on:
            return settings.FILES_REST_SECONDS
        return settings.REMEMBER_PATIENCE_SECONDS

    def begin_look(self) -> None:
        """Have a thread look at the files of the next jobs; `note_look` follows."""
        files = self._files
        assert files is not None
        is_garbage = self._count > 2 * len(self._table) + _GARBAGE_MIN
        if self._cursor == 0 or is_garbage or not files.has_begun:
            self._forget()
            files.forget()
        rows, has_more = self._table.pending_after(self._cursor, _PAGE_JOBS)
        self._last = rows[-1].id if has_more else self._table.last_id
        in_memory = self._ledger.in_memory
        self._chosen = [(row, row.serial) for row in rows if in_memory(row.id) is None]
        ids = [row.id for row, _ in self._chosen]
        unlike = {row.id for row, _ in self._chosen if not self._may_have_template(row)}
        records, self._records = self._records, []
        look = Look(files, self._ledger.directory, ids, unlike, records)
        self._looks += 1
        incarnation, number = self._runtime.incarnation, self._looks

        def finished() -> Message:
            return messages.FilesLookedAt(incarnation=incarnation, number=number)

        try:
            self._runtime.when_idle(look.steps(), finished)
        except RuntimeError as error:
            self._give_up(str(error))
        else:
            self._look = look

    def note_look(self, message: messages.FilesLookedAt) -> None:
        """The thread has looked."""
        look = self._look
        is_ours = (message.incarnation, message.number) == (self._runtime.incarnation, self._looks)
        if look is None or not is_ours:
            # Of a queue that was replaced.
            return
        self._look = None
        chosen, self._chosen = self._chosen, []
        if look.error is not None:
            self._give_up(look.error.text)
            return
        self._has_gone_on = self._note_page(look, chosen) and self.is_due

    def close(self) -> None:
        """Look no further: from now on the thread leaves everything alone."""
        if self._look is not None:
            self._look.give_up()
            self._look = None

    def _give_up(self, problem: str) -> None:
        # The next start reads the files, as always.
        self._log.warning("files are not remembered for the next start", error=problem)
        self._files = None

    def _forget(self) -> None:
        self._cursor = self._count = self._number = self._tried = 0
        self._known.clear()
        self._records.clear()

    def _note_page(self, look: Look, chosen: list[tuple[Row, int]]) -> bool:
        """Note these jobs; False if the next one's file has just changed, and has to rest first."""
        now, rest = look.now, round(settings.MARK_REST_SECONDS * 10**9)
        last, is_early = self._last, False
        new: list[Template] = []
        pages: dict[int, Page] = {}
        heads = Heads([], [], [], [], [], [], [], [], [])
        for (row, serial), mark in zip(chosen, look.marks, strict=True):
            # Whatever the queue writes into a file has another serial.
            is_as_before = row.serial == serial and self._table.find(row.id) is row
            number = self._template_of(row, new) if is_as_before else None
            head = look.heads.get(row.id) if is_as_before else None
            if head is not None and head.ganger_serial != row.serial:
                head = None
            if (number is None and head is None) or mark is None or mark[1] >= now + rest:
                # Changed in the future: the clock was set.
                continue
            if mark[1] > now - rest:
                last, is_early = row.id - 1, True
                break
            if number is None:
                assert head is not None
                _add_head(heads, head, mark)
                continue
            page = pages.get(number)
            if page is None:
                page = pages[number] = Page(number, [], [], [], [], [], [])
            _add(page, row, mark)
        self._records = [*new, *pages.values()]
        if heads.ids:
            self._records.append(heads)
        self._count += len(heads.ids) + sum(len(page.ids) for page in pages.values())
        self._cursor = last
        return not is_early

    def _may_have_template(self, row: Row) -> bool:
        traits = row.traits
        if not isinstance(traits, Derived) or traits.shared_inputs is None:
            return False
        if row.status is not JobStatus.QUEUED or traits.reason or traits.limits:
            return False
        return self._may_try or id(traits.shared_inputs) in self._known

    @property
    def _may_try(self) -> bool:
        return self._number < TEMPLATES_MAX and self._tried < _TRIED_MAX

    def _template_of(self, row: Row, new: list[Template]) -> int | None:
        """The number of the row's template; ``new`` gets one that was made for it. None: none."""
        if not self._may_have_template(row) or self._ledger.in_memory(row.id) is not None:
            return None
        for known in self._known.get(id(row.shared_inputs), ()):
            if _is_alike(row, known.row):
                return known.number
        if not self._may_try:
            return None
        self._tried += 1
        body = self._ledger.directory.read(row.id)
        template = None if body is None else row_of_text(body)
        if body is None or template is None or row != template:
            return None
        new.append(Template(self._number, body))
        self._note_template(self._number, template, row.shared_inputs)
        return self._number - 1

    def _note_template(self, number: int, row: Row, shared: object) -> None:
        self._known.setdefault(id(shared), []).append(_Remembered(number, row, shared))
        self._number = max(self._number, number + 1)


def _add(page: Page, row: Row, mark: Mark) -> None:
    page.ids.append(row.id)
    page.inodes.append(mark[0])
    page.changed.append(mark[1])
    page.received.append(row.received)
    page.keys.append(row.key)
    page.digests.append(row.digest)


def _add_head(heads: Heads, head: JobHeader, mark: Mark) -> None:
    heads.ids.append(head.id)
    heads.inodes.append(mark[0])
    heads.changed.append(mark[1])
    heads.received.append(head.received_timestamp)
    heads.keys.append(head.ganger_key)
    heads.digests.append(head.ganger_digest)
    heads.serials.append(head.ganger_serial)
    heads.priorities.append(head.priority)
    heads.dependent.append(head.is_dependent)


def _is_alike(row: Row, template: Row) -> bool:
    """Whether the row differs from the template's in nothing but what a page has."""
    other = msgspec.structs.replace(
        template, id=row.id, received=row.received, key=row.key, digest=row.digest
    )
    return other == row
