"""A daemon without a queue: a real `Router` in a thread, answering from a few dictionaries.

What it knows is in a `Store`, so that a second one can be the successor of the first.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import queue
import select
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ganger.storage import errors
from ganger.storage.disk import documents, paths
from ganger.storage.jobs.jobs import (
    SUBMISSION_KEY,
    Job,
    JobStatus,
    LogEntry,
    OpcodeEntry,
    encode_job,
)
from ganger.transport import frames, messages
from ganger.transport.messages import Message
from ganger.transport.zmq.peers import Incoming
from ganger.transport.zmq.router import Router

PATIENCE_SECONDS = 20
"""Far more than anything takes; a longer wait has found a fault."""


class Store:
    """What a daemon has on disk."""

    def __init__(self) -> None:
        self.specs: dict[int, messages.JobSpec] = {}
        self.statuses: dict[int, JobStatus] = {}
        self.logs: dict[int, list[LogEntry]] = collections.defaultdict(list)
        self.keys: dict[str, list[int]] = {}
        self.filters: dict[str, messages.ReplaceFilter] = {}
        self.inputs: dict[str, bytes] = {}
        self.rejected: dict[int, str] = {}
        """Of each submission: the places that a rule rejects, and why."""

    def add(self, spec: messages.JobSpec) -> int:
        """Store a job."""
        job_id = len(self.specs) + 1
        self.specs[job_id] = spec
        self.statuses[job_id] = JobStatus.QUEUED
        return job_id

    def summary(self, job_id: int) -> messages.JobSummary:
        """The summary of a job; `UnknownJobError` if there is none."""
        if job_id not in self.specs:
            raise errors.UnknownJobError(f"job {job_id}: there is no such job")
        return messages.JobSummary(
            id=job_id, status=self.statuses[job_id], summary="TEST_DELAY", priority=0
        )

    def document(self, job_id: int) -> bytes:
        """The job file of a job."""
        self.summary(job_id)
        ops = [
            OpcodeEntry(input=op, status=self.statuses[job_id], log=self.logs[job_id])
            for op in self.specs[job_id].ops
        ]
        return encode_job(Job(id=job_id, ops=ops, extra={SUBMISSION_KEY: "key"}))


Watcher = tuple[bytes, int]
Paged = (
    messages.QueryJobs | messages.QueryLocks | messages.QueryConfiguration | messages.ReadObjects
)


class FakeDaemon:
    """Runs from its making until `kill`; the endpoint file stays, as after a SIGKILL."""

    def __init__(
        self,
        data: Path,
        store: Store | None = None,
        *,
        socket: Path | None = None,
        remote: str | None = None,
        silent_to: tuple[type[Message], ...] = (),
    ) -> None:
        self.store = store or Store()
        self.silent_to = silent_to
        self.refusals: dict[type[Message], list[errors.GangerError]] = {}
        self.received: queue.Queue[Message] = queue.Queue()
        places = paths.places(data)
        self.router = Router(socket or places.socket, remote=remote, keys=places.keys)
        self.endpoints = self.router.endpoints
        self._watches: dict[Watcher, messages.WatchJobs] = {}
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._wake = os.eventfd(0)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        endpoint_file = {
            "pid": os.getpid(),
            "version": "0",
            "protocol": messages.PROTOCOL,
            "endpoints": self.endpoints,
            "socket": str(socket or places.socket),
        }
        documents.make_directory(places.data)
        documents.replace(places.endpoint_file, msgspec.json.encode(endpoint_file), flush=False)

    def kill(self) -> None:
        """End without a word."""
        if self._thread.is_alive():
            self._order(None)
            self._thread.join(PATIENCE_SECONDS)
            assert not self._thread.is_alive()
            os.close(self._wake)

    def change(self, job_id: int, status: JobStatus) -> None:
        """Give a job another status, and tell the watches."""
        self._order(lambda: self._change(job_id, status))

    def log(self, job_id: int, text: str) -> None:
        """Add a line to a job's log, and tell the watches."""
        self._order(lambda: self._log(job_id, text))

    def lose_watches(self) -> None:
        """Forget all watches, as a daemon does with a peer that did not read."""
        self._order(self._watches.clear)

    def wait_for(self, kind: type[Message]) -> Message:
        """The next request of this kind that comes in; earlier ones are passed over."""
        while True:
            message = self.received.get(timeout=PATIENCE_SECONDS)
            if isinstance(message, kind):
                return message

    def _order(self, command: Callable[[], None] | None) -> None:
        self._commands.put(command)
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        poll = select.poll()
        for descriptor in (self._wake, *self.router.filenos()):
            poll.register(descriptor, select.POLLIN)
        with contextlib.closing(self.router):
            while True:
                ready = [descriptor for descriptor, _ in poll.poll()]
                if self._wake in ready:
                    os.eventfd_read(self._wake)
                while not self._commands.empty():
                    command = self._commands.get()
                    if command is None:
                        return
                    command()
                while True:
                    for incoming in self.router.receive():
                        self._take(incoming)
                    if not self.router.has_more:
                        break

    def _take(self, incoming: Incoming) -> None:
        try:
            frame = frames.decode(incoming.data, messages.ClientRequest)
        except frames.UnreadableMessageError as error:
            self._say(incoming.peer, error.number, messages.Failure(error.name, error.text))
            return
        self.received.put(frame.message)
        watcher = (incoming.peer, frame.number)
        try:
            self._answer(watcher, frame.message)
        except errors.GangerError as error:
            self._say(*watcher, messages.Failure(error.name, error.text))

    def _answer(  # noqa: PLR0912, PLR0915 - one branch for each request
        self, watcher: Watcher, message: Message
    ) -> None:
        if refusals := self.refusals.get(type(message)):
            raise refusals.pop(0)
        match message:
            case messages.WatchJobs():
                self._start_watch(watcher, message)
                return
            case messages.StopWatch():
                self._watches.pop((watcher[0], message.request_id), None)
                return
            case messages.SubmitJobs():
                reply: Message = self._submit(message)
            case messages.ListJobs():
                reply = self._list(message)
            case messages.FindJobs():
                names = [spec.name for spec in self.store.specs.values()]
                found = [[1 + names.index(one)] if one in names else [] for one in message.names]
                reply = messages.JobsFound(found=found)
            case messages.StoreInput():
                kept = self.store.inputs.get(message.token, b"")
                assert len(kept) >= message.offset, "a part is missing"
                self.store.inputs[message.token] = kept[: message.offset] + message.data
                reply = messages.InputStored(size=message.offset + len(message.data))
            case messages.ReadJob():
                reply = messages.JobDocument(id=message.id, body=self.store.document(message.id))
            case messages.AwaitJobChange():
                status, log = self.store.summary(message.id).status, self.store.logs[message.id]
                news = [entry for entry in log if entry[0] > (message.log_serial or 0)]
                reply = messages.JobAwaited(
                    values=msgspec.json.encode([status] * len(message.fields)),
                    log=msgspec.json.encode(news),
                    is_final=status.is_final,
                )
            case messages.CancelJob():
                self._change(message.id, JobStatus.CANCELED)
                reply = messages.CancelOutcome(accepted=True, text=f"Job {message.id} canceled")
            case messages.ChangeJobPriority():
                reply = messages.PriorityOutcome(accepted=False, text="not any more")
            case messages.ReadPlan():
                reply = messages.PlanRead(
                    now=1_000.0, slots=1, works=[None], running=[(1, 0, 2.0)], pending=[], count=0
                )
            case messages.ArchiveJob():
                reply = messages.ArchiveOutcome(archived=[message.id])
            case messages.AutoArchiveJobs():
                reply = messages.ArchiveOutcome(archived=[], left=2)
            case messages.PurgeJobs():
                left_out = [(9, "there is no job 9")] if message.after else []
                page = [(message.after + 1, 4096)]
                reply = messages.PurgeOutcome(page, left_out, None if message.after else 1)
            case messages.ListLocks():
                row = messages.LockRow(name="node/n1", mode="shared", owners=["1"], pending=[])
                reply = messages.LocksListed(rows=[row])
            case messages.ListDependencies():
                reply = messages.DependenciesListed(rows=[])
            case messages.ReplaceFilter():
                assert message.uuid is not None
                self.store.filters[message.uuid] = message
                reply = messages.FilterStored(uuid=message.uuid)
            case messages.ListFilters():
                rows = [row_of(rule) for rule in self.store.filters.values()]
                wanted = message.uuids
                rows = [row for row in rows if wanted is None or row.uuid in wanted]
                reply = messages.FiltersListed(filters=rows)
            case messages.DeleteFilter():
                if self.store.filters.pop(message.uuid, None) is None:
                    raise errors.UnknownFilterError(f"Filter rule with UUID {message.uuid}")
                reply = messages.Done()
            case _ if isinstance(message, Paged):
                reply = self._page(message)
            case messages.QueryFields():
                fields = [field_of(name) for name in message.fields or ["all"]]
                reply = messages.QueryAnswered(fields=fields, rows=b"[]")
            case _:
                reply = messages.Done()
        if not isinstance(message, self.silent_to):
            self._say(*watcher, reply)

    def _page(self, message: Paged) -> Message:
        """Three pages, the second of which is empty."""
        page = int(message.after or "0")
        next_after = None if page == 2 else str(page + 1)
        if isinstance(message, messages.ReadObjects):
            found = [] if page == 1 else [{"uuid": message.kind, "page": page}]
            return messages.ObjectsRead(serial_no=1, objects=found, next_after=next_after)
        rows = [[[0, [type(message).__name__, page, message.filter]] for _ in message.fields]]
        return messages.QueryAnswered(
            fields=[field_of(name) for name in message.fields],
            rows=b"[]" if page == 1 else msgspec.json.encode(rows),
            next_after=next_after,
        )

    def _submit(self, message: messages.SubmitJobs) -> Message:
        if message.dry_run:
            return messages.JobsSubmitted(ids=[])
        assert message.key is not None
        is_repeat = message.key in self.store.keys
        rejected = self.store.rejected
        if not is_repeat:
            self.store.keys[message.key] = [
                self.store.add(spec)
                for place, spec in enumerate(message.jobs)
                if place not in rejected
            ]
        return messages.JobsSubmitted(
            ids=self.store.keys[message.key], is_repeat=is_repeat, rejected=rejected
        )

    def _list(self, message: messages.ListJobs) -> Message:
        ids = sorted(self.store.specs) if message.ids is None else message.ids
        rows = [self.store.summary(job_id) for job_id in ids if job_id > message.after]
        rows = [row for row in rows if row.status in (message.statuses or list(JobStatus))]
        if message.newest_first:
            rows = [row for row in rows[::-1] if row.id < (message.before or math.inf)]
        page = rows[: message.limit]
        return messages.JobRows(
            rows=page, next_after=page[-1].id if len(rows) > len(page) else None
        )

    def _start_watch(self, watcher: Watcher, message: messages.WatchJobs) -> None:
        rows = [self.store.summary(job_id) for job_id in message.ids or sorted(self.store.specs)]
        self._watches[watcher] = message
        for row in rows:
            if row.status.is_final or not message.is_final_only:
                self._say(*watcher, messages.JobChanged(job=row))
            after = message.log_after.get(row.id, 0)
            entries = [entry for entry in self.store.logs[row.id] if entry[0] > after]
            if message.log and entries:
                logged = messages.JobLogged(id=row.id, op_index=0, entries=entries)
                self._say(*watcher, logged)
        self._end_finished()

    def _change(self, job_id: int, status: JobStatus) -> None:
        self.store.statuses[job_id] = status
        self._tell(job_id, messages.JobChanged(job=self.store.summary(job_id)))
        self._end_finished()

    def _log(self, job_id: int, text: str) -> None:
        log = self.store.logs[job_id]
        entry = (len(log) + 1, (1_700_000_000, 500_000), "message", text)
        log.append(entry)
        self._tell(job_id, messages.JobLogged(id=job_id, op_index=0, entries=[entry]))

    def _tell(self, job_id: int, part: Message) -> None:
        for watcher, watch in self._watches.items():
            is_wanted, said = watch.log or not isinstance(part, messages.JobLogged), part
            if isinstance(part, messages.JobChanged):
                is_wanted = part.job.status.is_final or not watch.is_final_only
                said = messages.JobsChanged(jobs=[part.job]) if watch.is_gathered else part
            if is_wanted and (watch.ids is None or job_id in watch.ids):
                self._say(*watcher, said)

    def _end_finished(self) -> None:
        for watcher, watch in list(self._watches.items()):
            ids = watch.ids
            if ids is not None and all(self.store.statuses[each].is_final for each in ids):
                del self._watches[watcher]
                self._say(*watcher, messages.WatchEnded())

    def _say(self, peer: bytes, number: int, message: Message) -> None:
        self.router.send(peer, frames.encode(message, number))


def field_of(name: str) -> dict[str, str]:
    """The definition of a field."""
    return {"name": name, "title": name.upper(), "kind": "other", "doc": f"The {name}"}


def row_of(rule: messages.ReplaceFilter) -> messages.FilterRow:
    """A rule as it is listed."""
    assert rule.uuid is not None
    return messages.FilterRow(
        name=rule.name,
        first=rule.first,
        uuid=rule.uuid,
        watermark=8,
        priority=rule.priority,
        predicates=rule.predicates,
        action=rule.action,
        reason_trail=[["gnt:user", rule.reason, 1]],
        valid_from=rule.valid_from,
        valid_until=rule.valid_until,
    )


@contextlib.contextmanager
def data_directory(path: Path) -> Iterator[Path]:
    """A data directory whose run directory, elsewhere in memory, goes at the end."""
    try:
        yield path
    finally:
        shutil.rmtree(paths.places(path).run, ignore_errors=True)
