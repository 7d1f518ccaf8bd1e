"""What users may read of the queue: listings, whole jobs, watches."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from tests.actors.runtime.stage import Asker

from ganger.actors.durable.ledger import Ledger
from ganger.actors.runtime.works import Work
from ganger.actors.store import queue_reader
from ganger.actors.store.job_classes import row_of
from ganger.actors.store.job_rows import Phase, Row
from ganger.actors.store.job_table import JobTable
from ganger.actors.store.loaded import Loaded
from ganger.actors.store.queue_reader import QueueReader
from ganger.storage import errors, settings
from ganger.storage.disk import paths
from ganger.storage.jobs import jobs
from ganger.storage.jobs.job_filters import JobFilter
from ganger.storage.jobs.jobs import JobStatus, LogEntry
from ganger.storage.jobs.origins import NAME_KEY
from ganger.storage.log.journal import Journal
from ganger.storage.queue_files import job_files
from ganger.storage.queue_files.job_files import QueueDirectory
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import ListJobs

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


def entry(serial: int) -> LogEntry:
    return serial, (5, 6), "stdout", f"line {serial}"


class Library:
    """A reader and what it reads from."""

    def __init__(self, root: Path) -> None:
        places = paths.Places(root, root / "run")
        places.queue.mkdir()
        self.queue = places.queue
        self.directory = QueueDirectory(places)
        self.directory.prepare()
        self.ledger = Ledger(self.directory, Journal(places.journal))
        self.ledger.begin(Loaded())
        self.table = JobTable()
        self.gathering = 0
        works: list[Work] = []
        self.between: Callable[[], object] = lambda: None
        """What happens between two slices of a watch that begins."""
        self.reader = QueueReader(
            self.table, self.ledger, structlog.get_logger(), self._gather, works.append
        )

    def _gather(self) -> None:
        self.gathering += 1

    def job(
        self, job_id: int, *statuses: JobStatus, log: int = 0, name: str | None = None
    ) -> jobs.Job:
        ops = [
            jobs.OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY"}, status=status) for status in statuses
        ]
        ops[0].log = [entry(serial) for serial in range(1, log + 1)]
        return jobs.Job(id=job_id, ops=ops, extra={} if name is None else {NAME_KEY: name})

    def add(
        self,
        job_id: int,
        status: JobStatus,
        *,
        log: int = 0,
        depends: Any = None,
        name: str | None = None,
    ) -> Row:
        job = self.job(job_id, status, log=log, name=name)
        job.ops[0].input["depends"] = depends
        self.directory.write(job_id, jobs.encode_job(job), flush=False)
        phase = {QUEUED: Phase.PENDING, RUNNING: Phase.HANDED_OVER}.get(status, Phase.ENDED)
        row = row_of(job, phase)
        self.table.add(row)
        return row

    def archive(
        self, job_id: int, status: JobStatus, *, log: int = 0, name: str | None = None
    ) -> None:
        job = self.job(job_id, status, log=log, name=name)
        self.directory.write(job_id, jobs.encode_job(job), flush=False)
        self.directory.archive(job_id)

    def ids(self, request: ListJobs) -> list[int]:
        return [row.id for row in self.reader.rows(request).rows]

    def document(self, job_id: int) -> Any:
        return msgspec.json.decode(self.reader.document(job_id).body)

    def watch(
        self,
        *ids: int,
        log: bool = False,
        log_after: dict[int, int] | None = None,
        is_final_only: bool = False,
        is_gathered: bool = False,
    ) -> Asker:
        asker = Asker()
        request = messages.WatchJobs(
            ids=list(ids) or None,
            log=log,
            log_after=log_after or {},
            is_final_only=is_final_only,
            is_gathered=is_gathered,
        )
        for _ in self.reader.watch(Envelope(request, asker, 7, peer=b"p"), request):
            self.between()
        return asker


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    # A page of archived jobs ends with its turn only where a test says so.
    monkeypatch.setattr(settings, "QUERY_SLICE_SECONDS", math.inf)
    made = Library(tmp_path)
    yield made
    made.ledger.close()


def received(of: Asker) -> list[object]:
    """What a watch received: (id, status), (id, log serials), "ended"."""
    found: list[object] = []
    for answer in of.answers:
        match answer:
            case messages.JobChanged():
                found.append((answer.job.id, str(answer.job.status)))
            case messages.JobsChanged():
                found.append([(job.id, str(job.status)) for job in answer.jobs])
            case messages.JobLogged():
                found.append((answer.id, [serial for serial, *_ in answer.entries]))
            case messages.WatchEnded():
                found.append("ended")
    return found


# Listings.


def test_live_jobs_are_listed_in_pages(library: Library) -> None:
    for job_id in range(1, 6):
        library.add(job_id, QUEUED)
    page = library.reader.rows(ListJobs(limit=2))
    assert ([row.id for row in page.rows], page.next_after) == ([1, 2], 2)
    page = library.reader.rows(ListJobs(limit=2, after=4))
    assert ([row.id for row in page.rows], page.next_after) == ([5], None)
    assert library.ids(ListJobs(statuses=[ERROR])) == []


@pytest.mark.parametrize(("limit", "expected"), [(0, 1), (-5, 1), (2, 2), (10**9, 3)])
def test_a_page_has_a_limit_whatever_is_asked_for(
    library: Library, monkeypatch: pytest.MonkeyPatch, limit: int, expected: int
) -> None:
    monkeypatch.setattr(settings, "LIST_PAGE_ROWS", 3)
    for job_id in range(1, 6):
        library.add(job_id, QUEUED)
    assert len(library.ids(ListJobs(limit=limit))) == expected


def test_versions_tell_what_has_changed(library: Library) -> None:
    library.add(1, QUEUED)
    library.add(2, RUNNING)
    library.add(3, SUCCESS)

    def versions() -> dict[int, int]:
        found = library.reader.versions(messages.ListJobVersions())
        assert found.next_after is None
        return dict(zip(found.ids, found.versions, strict=True))

    before = versions()
    assert before[2] == 0
    assert 0 not in {before[1], before[3]}
    assert versions() == before
    row = library.table.find(1)
    assert row is not None
    seen = {before[1]}
    for change in ({"serial": 5}, {"serial": 6}, {"status": WAITING}, {"phase": Phase.STARTING}):
        for name, value in change.items():
            setattr(row, name, value)
        assert versions()[1] not in seen
        seen.add(versions()[1])
    assert versions()[1] == 0
    assert versions()[3] == before[3]


def test_a_state_that_is_not_flushed_has_no_version(library: Library) -> None:
    library.add(1, QUEUED)
    body = jobs.encode_job(library.job(1, QUEUED))
    library.ledger.store_state((1, 7, body), lambda: None)
    request = messages.ListJobVersions()
    assert library.reader.versions(request).versions == [0]
    library.ledger.commit()
    assert library.reader.versions(request).versions != [0]


def test_versions_come_in_pages_and_may_be_left_out(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "VERSIONS_PAGE_ROWS", 2)
    for job_id in (1, 2, 4):
        library.add(job_id, QUEUED)
    first = library.reader.versions(messages.ListJobVersions(has_versions=False))
    mark = library.table.mark
    assert first == messages.JobVersions(ids=[1, 2], versions=[], next_after=2, mark=mark)
    rest = library.reader.versions(messages.ListJobVersions(after=2))
    assert (rest.ids, len(rest.versions), rest.next_after) == ([4], 1, None)
    known = messages.ListJobVersions(has_versions=False, known_mark=mark)
    assert library.reader.versions(known) == messages.JobVersions(ids=[], versions=[], mark=mark)
    library.table.remove(2)
    assert library.reader.versions(known).ids == [1, 4]
    mark = library.reader.versions(known).mark
    library.add(2, QUEUED)
    known = messages.ListJobVersions(has_versions=False, known_mark=mark)
    assert library.reader.versions(known).ids == [1, 2]


def test_jobs_are_listed_by_id_live_or_archived(library: Library) -> None:
    library.archive(2, SUCCESS)
    library.add(3, RUNNING)
    rows = library.reader.rows(ListJobs(ids=[3, 2, 3])).rows
    assert [(row.id, row.archived) for row in rows] == [(3, False), (2, True), (3, False)]
    assert library.ids(ListJobs(ids=[2, 3], statuses=[SUCCESS])) == [2]


def test_an_unknown_id_is_refused_by_name(library: Library) -> None:
    library.add(3, RUNNING)
    for request in (ListJobs(ids=[3, 9]), ListJobs(ids=[9], archived=True)):
        with pytest.raises(errors.UnknownJobError) as caught:
            library.reader.rows(request)
        assert caught.value.text == "there is no job 9"


def test_a_listing_by_id_has_a_limit(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "LIST_PAGE_ROWS", 3)
    for job_id in (1, 2, 3):
        library.add(job_id, QUEUED)
    assert library.ids(ListJobs(ids=[1, 2, 3])) == [1, 2, 3]
    with pytest.raises(errors.BadRequestError, match="ids: expected at most 3, got 4"):
        library.reader.rows(ListJobs(ids=[1, 2, 3, 4]))


def test_archived_jobs_are_listed_only_when_asked_for(library: Library) -> None:
    for job_id in (2, 4):
        library.archive(job_id, SUCCESS)
    library.archive(5, ERROR)
    for job_id in (1, 3, 6):
        library.add(job_id, QUEUED)
    assert library.ids(ListJobs()) == [1, 3, 6]
    assert library.ids(ListJobs(archived=True)) == [1, 2, 3, 4, 5, 6]
    page = library.reader.rows(ListJobs(archived=True, limit=2, after=1))
    assert ([(row.id, row.archived) for row in page.rows], page.next_after) == (
        [(2, True), (3, False)],
        3,
    )
    assert library.ids(ListJobs(archived=True, statuses=[ERROR, QUEUED], after=3)) == [5, 6]


def test_a_page_of_archived_jobs_ends_with_its_turn(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in (2, 4, 5):
        library.archive(job_id, SUCCESS)
    library.add(3, QUEUED)
    monkeypatch.setattr(settings, "QUERY_SLICE_SECONDS", 0.0)
    found, after = list[list[int]](), 0
    while True:
        request = ListJobs(archived=True, after=after, statuses=[SUCCESS])
        page = library.reader.rows(request)
        found.append([row.id for row in page.rows])
        if page.next_after is None:
            break
        after = page.next_after
    # The last page ends the folder.
    assert found == [[2], [], [4], [5], []]


def test_the_newest_come_first_and_the_next_page_has_those_before(library: Library) -> None:
    for job_id in (2, 4):
        library.archive(job_id, SUCCESS)
    for job_id in (1, 3, 6):
        library.add(job_id, QUEUED)
    asked = ListJobs(newest_first=True, archived=True, limit=2)
    page = library.reader.rows(asked)
    assert ([row.id for row in page.rows], page.next_after) == ([6, 4], 4)
    page = library.reader.rows(msgspec.structs.replace(asked, before=4, limit=9, after=1))
    assert ([row.id for row in page.rows], page.next_after) == ([3, 2], None)
    assert library.ids(ListJobs(newest_first=True)) == [6, 3, 1]


def test_conditions_hold_for_live_and_archived_jobs(library: Library) -> None:
    for job_id, name in ((1, "a"), (2, "b"), (3, "a")):
        library.add(job_id, QUEUED, name=name)
    library.archive(4, SUCCESS, name="a")
    assert library.ids(ListJobs(wanted=JobFilter(name="a"))) == [1, 3]
    assert library.ids(ListJobs(wanted=JobFilter(name="a"), archived=True)) == [1, 3, 4]
    assert library.ids(ListJobs(wanted=JobFilter(name="a"), ids=[1, 2, 4])) == [1, 4]
    assert library.ids(ListJobs(wanted=JobFilter(text="A"), statuses=[SUCCESS], archived=True)) == [
        4
    ]
    with pytest.raises(errors.BadRequestError, match="name: expected 1 to"):
        library.reader.rows(ListJobs(wanted=JobFilter(name="")))


def test_an_archived_file_that_cannot_be_read_is_named(library: Library) -> None:
    library.archive(2, SUCCESS)
    library.archive(3, SUCCESS)
    Path(library.directory._archive_path(2)).write_bytes(b"torn")
    # Asked for by its id, it is an error; in a listing it does not hide the others.
    with pytest.raises(errors.StorageError, match="job-2 in the archive: not a job"):
        library.reader.rows(ListJobs(ids=[2], archived=True))
    listed = library.reader.rows(ListJobs(archived=True))
    assert [row.id for row in listed.rows] == [3]
    assert "not a job" in library.reader.unreadable[2]


def test_an_archived_file_that_holds_another_job_is_handed_out_as_neither(library: Library) -> None:
    library.archive(2, SUCCESS)
    library.archive(3, SUCCESS)
    Path(library.directory._archive_path(2)).write_bytes(library.directory.read_archived(3) or b"")
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            with pytest.raises(errors.StorageError, match="archive: holds job 3, not 2"):
                library.reader.document(2)
    assert [line["file"] for line in logged] == ["job-2 in the archive: holds job 3, not 2"]


# Whole jobs.


def test_a_job_is_read_as_it_was_written(library: Library) -> None:
    library.add(3, ERROR)
    library.archive(2, SUCCESS)
    live, archived = library.reader.document(3), library.reader.document(2)
    assert live == messages.JobDocument(
        id=3, body=library.directory.read(3) or b"", summary="TEST_DELAY"
    )
    assert archived.archived
    assert archived.summary == "TEST_DELAY"
    assert archived.body == library.directory.read_archived(2)
    with pytest.raises(errors.UnknownJobError, match="there is no job 4"):
        library.reader.document(4)


def test_the_newest_state_is_read_though_the_file_is_older(library: Library) -> None:
    library.add(3, RUNNING)
    newer = jobs.encode_job(library.job(3, SUCCESS))
    library.ledger.note(3, 9, newer)
    assert library.reader.document(3).body == newer


def test_a_job_that_waits_for_dependencies_reads_so(library: Library) -> None:
    library.add(3, QUEUED, depends=[[1, []]])
    assert library.document(3)["ops"][0]["status"] == "waiting"
    assert library.ids(ListJobs(statuses=[WAITING])) == [3]


def test_log_lines_that_came_since_are_in_the_job(library: Library) -> None:
    library.add(3, RUNNING, log=2)
    # Sent again to a queue that was replaced, they may begin with what is known.
    for serials in ((2, 3), (2, 3), (3, 4)):
        library.reader.log_appended(
            messages.JobLogAppended(job_id=3, op_index=0, entries=[entry(n) for n in serials])
        )
    assert [serial for serial, *_ in library.document(3)["ops"][0]["log"]] == [1, 2, 3, 4]
    library.reader.forget_appended(3, 3)
    assert [serial for serial, *_ in library.document(3)["ops"][0]["log"]] == [1, 2, 4]
    library.reader.forget_appended(3, None)
    assert [serial for serial, *_ in library.document(3)["ops"][0]["log"]] == [1, 2]


def test_log_lines_of_a_job_without_a_process_are_not_kept(library: Library) -> None:
    library.add(3, SUCCESS)
    for job_id in (3, 9):
        library.reader.log_appended(
            messages.JobLogAppended(job_id=job_id, op_index=0, entries=[entry(1)])
        )
    assert library.reader._appended == {}


# Watches.


def test_a_watch_first_sends_each_job_as_it_is_then_each_change(library: Library) -> None:
    row = library.add(3, RUNNING, log=2)
    library.add(4, SUCCESS)
    asker = library.watch(3, 4, log=True)
    assert received(asker) == [(3, [1, 2]), (3, "running"), (4, "success")]
    library.reader.log_appended(messages.JobLogAppended(job_id=3, op_index=0, entries=[entry(3)]))
    row.status = SUCCESS
    library.reader.watches.changed(row)
    assert received(asker)[3:] == [(3, [3]), (3, "success"), "ended"]


def test_a_watch_of_final_jobs_sends_them_and_ends(library: Library) -> None:
    library.add(4, SUCCESS)
    library.archive(2, ERROR, log=1)
    assert received(library.watch(4, 2, log=True)) == [
        (4, "success"),
        (2, [1]),
        (2, "error"),
        "ended",
    ]


def test_a_watch_of_ends_begins_with_those_that_have_ended(library: Library) -> None:
    row = library.add(3, RUNNING)
    library.add(4, SUCCESS)
    asker = library.watch(3, 4, is_final_only=True)
    assert received(asker) == [(4, "success")]
    row.status = SUCCESS
    library.reader.watches.changed(row)
    assert received(asker)[1:] == [(3, "success"), "ended"]


def test_a_watch_without_log_sends_no_log(library: Library) -> None:
    library.add(3, RUNNING, log=2)
    asker = library.watch(3)
    library.reader.log_appended(messages.JobLogAppended(job_id=3, op_index=0, entries=[entry(3)]))
    assert received(asker) == [(3, "running")]


def test_a_watch_of_every_job_begins_with_those_that_are_not_final(library: Library) -> None:
    library.add(1, SUCCESS)
    library.add(2, RUNNING)
    assert received(library.watch()) == [(2, "running")]


def test_a_watch_of_every_job_begins_in_slices_between_which_no_change_is_missed(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "WATCHED_AT_ONCE", 2)
    rows = {job_id: library.add(job_id, RUNNING) for job_id in range(1, 6)}
    slices = 0

    def change() -> None:
        nonlocal slices
        slices += 1
        if slices == 1:
            for job_id in (1, 3):
                rows[job_id].status = SUCCESS
                library.reader.watches.changed(rows[job_id])
            library.reader.watches.changed(library.add(6, RUNNING))

    library.between = change
    # A client that begins a watch anew names the jobs of which it knows.
    asker = library.watch(log_after=dict.fromkeys(rows, 0))
    assert received(asker) == [
        (1, "running"),
        (2, "running"),
        (1, "success"),
        (3, "success"),
        (6, "running"),
        (4, "running"),
        (5, "running"),
        (6, "running"),
    ]
    assert slices == 2
    rows[3].status = ERROR
    library.reader.watches.changed(rows[3])
    assert received(asker)[8:] == [(3, "error")]


def test_a_watch_of_every_job_that_is_stopped_while_it_begins_sends_no_more(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "WATCHED_AT_ONCE", 2)
    for job_id in range(1, 6):
        library.add(job_id, RUNNING)
    library.between = lambda: library.reader.stop(b"p", 7)
    assert received(library.watch()) == [(1, "running"), (2, "running")]
    assert len(library.reader.watches) == 0


def test_a_watch_that_meets_a_damaged_job_while_it_begins_is_refused_and_not_open(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "WATCHED_WITH_LOG_AT_ONCE", 1)
    for job_id in (1, 2):
        library.add(job_id, RUNNING)
    Path(job_files.path(library.queue, 2)).write_text("{")
    with pytest.raises(errors.StorageError, match="job-2"):
        library.watch(log=True)
    assert len(library.reader.watches) == 0


def test_a_gathered_watch_begins_with_all_jobs_together(library: Library) -> None:
    first = library.add(2, RUNNING)
    library.add(3, RUNNING)
    asker = library.watch(is_gathered=True)
    assert received(asker) == [[(2, "running"), (3, "running")]]
    assert library.gathering == 0
    first.status = SUCCESS
    library.reader.watches.changed(first)
    assert library.gathering == 1


def test_a_watch_that_is_begun_again_goes_on_behind_the_last_line(library: Library) -> None:
    library.add(3, RUNNING, log=2)
    library.reader.log_appended(messages.JobLogAppended(job_id=3, op_index=0, entries=[entry(3)]))
    first = library.watch(3, log=True)
    again = library.watch(3, log=True, log_after={3: 2})
    assert received(first) == [(3, [1, 2, 3]), (3, "running")]
    assert received(again) == [(3, [3]), (3, "running")]
    assert received(library.watch(3, log=True, log_after={3: 3})) == [(3, "running")]
    # The same peer and number: one watch, however often it was begun.
    assert len(library.reader.watches) == 1


def test_a_watch_of_an_unknown_job_is_refused(library: Library) -> None:
    library.add(3, RUNNING)
    with pytest.raises(errors.UnknownJobError, match="there is no job 9"):
        library.watch(3, 9)
    assert len(library.reader.watches) == 0


@pytest.mark.parametrize(
    ("last", "serials", "has_gap"),
    [
        (3, [4, 5], False),
        (3, [1, 2, 3], False),
        (3, [3, 4], False),
        (3, [5], True),
        (3, [4, 6], True),
        # What the state has already fills no gap behind it.
        (3, [3, 5], True),
    ],
)
def test_a_gap_is_between_the_state_and_what_was_appended(
    last: int, serials: list[int], *, has_gap: bool
) -> None:
    appended = deque(
        queue_reader._Appended(0, (serial, (0, 0), "message", "")) for serial in serials
    )
    assert queue_reader._has_gap(last, appended) == has_gap
