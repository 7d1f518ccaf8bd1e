"""Removes ended jobs for good, live or archived: the only thing that gives space back.

The log has first that a job is purged; then its files go, and a start removes what a crash has
left. A job on which another one depends stays, since that one could not start any more.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import math
import time
from typing import TYPE_CHECKING

from ...storage import errors, settings, wording
from ...storage.jobs import origins
from ...storage.queue_files import job_files, removal
from ...transport import messages
from ..store.job_rows import Phase

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from ...storage.jobs.jobs import JobStatus
    from ...storage.queue_files.purged_tasks import PurgedTasks
    from ...transport.envelopes import Envelope
    from ...transport.messages import Message
    from ..runtime.component import Runtime
    from ..runtime.works import Work
    from ..store.job_rows import Row
    from ..store.job_store import JobStore

    Files = dict[int, list[str]]

_NEEDING_AT_ONCE = 5_000
"""Jobs whose dependencies are looked at before other requests have their turn."""


class Purging:
    """Carries out requests to purge jobs, a page of jobs at a time."""

    def __init__(self, runtime: Runtime, store: JobStore, purged_tasks: PurgedTasks) -> None:
        self._runtime = runtime
        self._purged_tasks = purged_tasks
        self._store = store
        self._table = store.table
        self._ledger = store.ledger
        self._directory = store.ledger.directory

    def purge(self, envelope: Envelope, message: messages.PurgeJobs) -> None:
        """Purge the jobs of one page, in slices. `BadRequestError` if there are too many ids."""
        if message.ids is not None and len(message.ids) > settings.PURGE_PAGE_JOBS:
            text = f"ids: expected at most {settings.PURGE_PAGE_JOBS}, got {len(message.ids)}"
            raise errors.BadRequestError(text)
        self._runtime.work(self._purging(envelope, message), envelope, outlives_asker=True)

    def _purging(self, envelope: Envelope, message: messages.PurgeJobs) -> Work:
        needed = yield from self._needed()
        page = _Page(message, removal.JobFiles(self._runtime.host.places, self._live_inputs))
        ids, page.next_after = self._ids(message)
        page.ended = yield from self._ended(ids, message)
        found: Files = {}
        for place, part in enumerate(_slices(ids)):
            if place:
                yield
            for job_id in part:
                if page.has_enough:
                    page.next_after = None
                    break
                files = self._chosen(job_id, page, needed)
                if files is not None:
                    found[job_id] = files
        if found and not message.is_dry_run:
            yield from self._removing(found)
        outcome = messages.PurgeOutcome(page.jobs, page.left_out, page.next_after)
        self._ledger.after_commit(functools.partial(envelope.reply, outcome), envelope.refuse)
        return None

    def _live_inputs(self, job_id: int) -> Iterable[str]:
        return self._directory.spool.inputs_of(job_id)

    def _ids(self, message: messages.PurgeJobs) -> tuple[list[int], int | None]:
        """The jobs to look at, in the order of their ids, and where the next page begins."""
        if message.ids is not None:
            return sorted(set(message.ids)), None
        live = self._table.ids_after(message.after)
        archived = self._directory.archived_ids_after(message.after)
        merged = (job_id for job_id, _ in itertools.groupby(heapq.merge(live, archived)))
        ids = list(itertools.islice(merged, settings.PURGE_PAGE_JOBS))
        return ids, ids[-1] if len(ids) == settings.PURGE_PAGE_JOBS else None

    def _ended(
        self, ids: list[int], message: messages.PurgeJobs
    ) -> Generator[None, None, dict[int, float]]:
        """When archived jobs of this page ended, as far as the index of the archive says so.

        Most are too young each time that retention looks, and their files need not be read.
        """
        ended: dict[int, float] = {}
        if not ids or message.ids is not None or (message.age_seconds or -1.0) < 0:
            return ended
        index = self._store.reader.search.archive
        end = time.monotonic() + settings.QUERY_SLICE_SECONDS
        with contextlib.suppress(errors.StorageError):
            for job_id, job in index.found(after=ids[0] - 1, before=ids[-1] + 1):
                if job is not None and job.ended is not None:
                    ended[job_id] = job.ended
                if time.monotonic() >= end:
                    yield
                    end = time.monotonic() + settings.QUERY_SLICE_SECONDS
        return ended

    def _needed(self) -> Generator[None, None, dict[int, int]]:
        """The jobs on which jobs depend that have not ended, each with one of these."""
        needed: dict[int, int] = {}
        after, has_more = 0, True
        while has_more:
            rows, has_more = self._table.page(after=after, limit=_NEEDING_AT_ONCE, statuses=None)
            for row in rows:
                if not row.status.is_final:
                    needed.update((target, row.id) for target, _ in row.depends)
                    needed.update(dict.fromkeys(row.needed_later, row.id))
            if has_more:
                after = rows[-1].id
                yield
        return needed

    def _chosen(self, job_id: int, page: _Page, needed: dict[int, int]) -> list[str] | None:
        """The files of the job if it is to go; otherwise the page says why not, if it was named."""
        message = page.message
        row = self._table.find(job_id)
        try:
            if why := self._obstacle(job_id, row, message):
                if message.ids is not None:
                    page.left_out.append((job_id, why))
                elif message.bytes_min and row is not None and not row.status.is_final:
                    page.note_large(job_id, row.status)
                return None
            if message.age_seconds is not None and not self._is_older(job_id, row, page):
                return None
        except errors.StorageError as error:
            # A file that cannot be read does not say how old it is.
            page.left_out.append((job_id, error.text))
            return None
        files = page.files.of(job_id)
        size = sum(files.values())
        # Another request may have purged it meanwhile. A live job need not have a file yet.
        if (row is None and not files) or size < message.bytes_min:
            return None
        if job_id in needed:
            page.left_out.append((job_id, f"job {needed[job_id]} depends on job {job_id}"))
            return None
        page.add(job_id, size)
        return page.files.paths(job_id)

    def _obstacle(self, job_id: int, row: Row | None, message: messages.PurgeJobs) -> str:
        """Why this job cannot be purged; empty: it can."""
        if row is None:
            is_there = message.ids is None or self._directory.archived_among([job_id])
            return "" if is_there else f"there is no job {job_id}"
        if not row.status.is_final:
            return f"job {job_id} is {row.status}: only a job that has ended can be purged"
        if row.phase is not Phase.ENDED:
            return f"the process of job {job_id} is about to leave: try again"
        return ""

    def _is_older(self, job_id: int, row: Row | None, page: _Page) -> bool:
        assert page.message.age_seconds is not None
        before = time.time() - page.message.age_seconds
        if row is not None:
            ended = row.ended or row.started or row.received
        elif page.ended.get(job_id, -math.inf) >= before:
            return False
        else:
            # Before a job goes for good, its own file has the say.
            body = self._directory.read_archived(job_id)
            ended = None if body is None else removal.ended_at(body)
        return ended is not None and ended < before

    def _removing(self, files: Files) -> Generator[None, None, None]:
        """Have the log say that these jobs are purged, with one flush; then remove their files."""
        refusal = yield from self._recording(files)
        if refusal is not None and self._ledger.is_short:
            self._make_room(files)
            refusal = yield from self._recording(files)
            if refusal is not None:
                gone = (
                    "large output and input of these jobs are removed already; purge them once more"
                )
                refusal = type(refusal)(f"{refusal.text}; {gone}")
        if refusal is not None:
            raise refusal
        segments = self._ledger.segments
        while segments.has_unremoved and segments.remove_purged(settings.REMOVED_AT_ONCE):
            yield
        self._free_large()
        self._store.note_space()

    def _free_large(self) -> None:
        """Have a thread free the space of large files: that takes long."""
        segments = self._ledger.segments
        large, segments.large_files = segments.large_files, []
        if not large:
            return

        def free() -> Message:
            removal.close(large)
            return messages.LargeFilesGone()

        try:
            self._runtime.in_thread(free)
        except RuntimeError:
            # There is no thread to be had.
            removal.close(large)

    def _recording(self, files: Files) -> Generator[None, None, errors.GangerError | None]:
        """Have the log say that these jobs are purged; why it does not."""
        if self._runtime.host.is_node and (refusal := (yield from self._keeping_keys(files))):
            return refusal
        outcome = list[errors.GangerError | None]()

        def stored() -> None:
            for job_id in files:
                if self._table.find(job_id) is not None:
                    self._table.remove(job_id)
                self._store.reader.unreadable.pop(job_id, None)
            outcome.append(None)

        self._ledger.store_purged(files, stored, outcome.append)
        while not outcome:
            yield
        return outcome[0]

    def _keeping_keys(self, files: Files) -> Generator[None, None, errors.GangerError | None]:
        """Keep the keys of these tasks, so that none of them starts again; why they are not."""
        keys: list[str] = []
        try:
            for part in _slices([*files]):
                keys += filter(None, map(self._name_of, part))
                yield
            self._purged_tasks.add(keys)
        except errors.StorageError as error:
            return error
        return None

    def _name_of(self, job_id: int) -> str | None:
        """A task's name is its key."""
        if (row := self._table.find(job_id)) is not None:
            return row.origin.name
        body = self._directory.read_archived(job_id)
        return (
            None if body is None else origins.origin_of(job_files.read_job(body, job_id).extra).name
        )

    def _make_room(self, files: Files) -> None:
        """The disk is so full that the log takes nothing: remove large output and input first.

        The jobs themselves stay until the log can have that they are purged, with a mark in place
        of their output. A repetition goes on from there.
        """
        for paths in files.values():
            removal.make_room(paths)
        self._store.note_space()


class _Page:
    """What one request has found so far."""

    @property
    def has_enough(self) -> bool:
        """Whether as much is freed as the request wants."""
        enough = self.message.bytes_enough
        return enough is not None and self._freed >= enough

    def __init__(self, message: messages.PurgeJobs, files: removal.JobFiles) -> None:
        self.message = message
        self.files = files
        self.jobs: list[tuple[int, int]] = []
        self.left_out: list[tuple[int, str]] = []
        self.next_after: int | None = None
        self.ended: dict[int, float] = {}
        """When archived jobs ended that the index of the archive knows."""
        self._freed = 0

    def note_large(self, job_id: int, status: JobStatus) -> None:
        """Say if this job, which has not ended, is what has the space."""
        size = sum(self.files.of(job_id).values())
        if size >= self.message.bytes_min:
            ends = f"`ganger job cancel --kill {job_id}` ends it"
            text = f"job {job_id} is {status} and takes {wording.size(size)}: {ends}, then purge it"
            self.left_out.append((job_id, text))

    def add(self, job_id: int, size: int) -> None:
        """This job goes, and takes so many bytes."""
        self.jobs.append((job_id, size))
        self._freed += size


def _slices(ids: list[int]) -> Iterable[list[int]]:
    for start in range(0, len(ids), settings.PURGED_AT_ONCE):
        yield ids[start : start + settings.PURGED_AT_ONCE]
