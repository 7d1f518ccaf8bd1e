"""The client library for asyncio: `AsyncClient`, with the verbs of `client.Client`.

>>> async def backup() -> None:
...     async with AsyncClient() as client:
...         job_id = await client.submit({"OP_ID": "OP_EXEC", "argv": ["make", "backup"]})
...         async for part in client.watch(job_id):
...             print(part)

Any number of tasks of one event loop may use a client at the same time. A task of its own
lets frames come and go while something is under way, and ends when nothing is.
"""

# ruff: noqa: ASYNC109 - the deadline of a call is told to the daemon, so each verb has one
from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, overload

from ...storage import errors, settings
from ...storage.job_views import JobInfo, LogLine, OutputChunk, StatusChange
from ..messages import (
    ArchiveJob,
    ArchiveOutcome,
    AutoArchiveJobs,
    CancelJob,
    CancelOutcome,
    ChangeJobPriority,
    DaemonInfo,
    ExplainJob,
    FilterRow,
    JobExplained,
    JobSpec,
    LimitsRead,
    ListDependencies,
    ListJobs,
    ListLocks,
    LockRow,
    PriorityOutcome,
    ReadInfo,
    ReadJob,
    Request,
    RetryJob,
    RuleTest,
    SetDrain,
    Simulated,
    StopDaemon,
    TestFilters,
)
from ..zmq.async_wire import AsyncDealer
from . import forks, requests
from .connection import Connection, Whereabouts, client_pair
from .exchanges import Exchange, ReplyT
from .output_following import OutputFollowing
from .output_reading import OutputReading, checked_reading
from .session import ConnectionLostError
from .watches import Part, checked_ids

CALLS_MAX = 1_000
"""Most calls under way at once; more wait for their turn."""

CALLS_AT_ONCE = 16
"""Whole jobs that are asked for before the first has come."""


class AsyncClient:
    """A connection to a daemon, for asyncio. The arguments are those of `Client`."""

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        endpoint: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        server_key: str | None = None,
        timeout: float = settings.CLIENT_DEADLINE_SECONDS,
        on_outage: Callable[[str], None] | None = None,
    ) -> None:
        self._timeout = timeout
        self._connection = Connection(
            AsyncDealer,
            Whereabouts(data, endpoint),
            client_pair(endpoint, key_file, server_key),
            timeout_seconds=timeout,
            on_outage=on_outage,
        )
        self._places = asyncio.Semaphore(CALLS_MAX)
        self._pumping: asyncio.Task[None] | None = None
        self._is_closed = False
        self._is_inherited = False
        forks.follow(self._forked)

    def _forked(self) -> None:
        """In a child that was forked: the event loop is the parent's, and so is the client."""
        self._is_inherited = self._is_closed = True
        forks.keep((self._connection, self._pumping))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; jobs go on. Twice is harmless."""
        self._is_closed = True
        if self._is_inherited:
            return
        pumping, self._pumping = self._pumping, None
        if pumping is not None:
            pumping.cancel()
            await asyncio.wait([pumping])
        self._connection.close(RuntimeError("the client was closed"), time.monotonic())

    # Jobs.

    async def submit(
        self,
        ops: requests.Ops,
        *,
        reason: requests.Reason | None = None,
        priority: int | None = None,
        depends: Sequence[requests.Dependency] | None = None,
        key: str | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Submit one job and return its id; see `Client.submit`."""
        job = JobSpec(ops=requests.checked_ops(ops, "ops"))
        ids = await self.submit_many(
            [job],
            reason=reason,
            priority=priority,
            depends=depends,
            key=key,
            dry_run=dry_run,
            timeout=timeout,
        )
        return ids[0] if ids else 0

    async def submit_many(
        self,
        jobs: Sequence[requests.JobLike],
        *,
        reason: requests.Reason | None = None,
        priority: int | None = None,
        depends: Sequence[requests.Dependency] | None = None,
        key: str | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> list[int]:
        """Submit jobs, all or none of them; see `Client.submit_many`."""
        message = requests.submission(
            jobs,
            reason=reason,
            priority=priority,
            depends=depends,
            key=requests.fresh_key() if key is None and not dry_run else key,
            dry_run=dry_run,
            now_nanoseconds=time.time_ns(),
        )
        return requests.submitted(await self._call(message, timeout), len(jobs))

    def jobs(
        self,
        ids: Iterable[int] | None = None,
        fields: Collection[str] | None = None,
        statuses: Collection[str] | None = None,
        *,
        archived: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[JobInfo]:
        """The jobs there are, or those with these ``ids``; see `Client.jobs`."""
        is_whole = requests.needs_whole(fields)
        wanted = None if ids is None else checked_ids(ids)
        pages = list(requests.listings(wanted, statuses, archived=archived))
        return self._list(pages, is_whole=is_whole, timeout=timeout)

    async def job(self, job_id: int, *, timeout: float | None = None) -> JobInfo:
        """The whole of one job, live or archived."""
        (job_id,) = checked_ids([job_id])
        return requests.document_view(await self._call(ReadJob(id=job_id), timeout))

    async def wait(
        self,
        *ids: int,
        timeout: float | None = None,
        fields: Collection[str] | None = None,
    ) -> list[JobInfo]:
        """Wait until these jobs have ended and return them whole; see `Client.wait`."""
        is_whole = fields is None or requests.needs_whole(fields)
        final: dict[int, JobInfo] = {}
        if ids:
            checked = checked_ids(ids)
            parts = self._follow(checked, log=False, timeout=timeout, is_of_ends=True)
            async for part in parts:
                if isinstance(part, StatusChange):
                    final[part.job_id] = part.job
        if is_whole:
            final = {job.id: job async for job in self._read_whole(list(final), None)}
        return [final[job_id] for job_id in ids]

    @overload
    def watch(
        self, *ids: int, log: bool = True, timeout: float | None = None, pause: None = None
    ) -> AsyncIterator[StatusChange | LogLine]: ...

    @overload
    def watch(
        self, *ids: int, log: bool = True, timeout: float | None = None, pause: float
    ) -> AsyncIterator[StatusChange | LogLine | None]: ...

    def watch(
        self,
        *ids: int,
        log: bool = True,
        timeout: float | None = None,
        pause: float | None = None,
    ) -> AsyncIterator[StatusChange | LogLine | None]:
        """Follow these jobs (all jobs, if none is named); see `Client.watch`."""
        checked = checked_ids(ids) if ids else None
        return self._follow(checked, log=log, timeout=timeout, pause=pause)

    @overload
    def follow(
        self, job_id: int, *, log: bool = True, timeout: float | None = None, pause: None = None
    ) -> AsyncIterator[StatusChange | LogLine | OutputChunk]: ...

    @overload
    def follow(
        self, job_id: int, *, log: bool = True, timeout: float | None = None, pause: float | None
    ) -> AsyncIterator[StatusChange | LogLine | OutputChunk | None]: ...

    def follow(
        self,
        job_id: int,
        *,
        log: bool = True,
        timeout: float | None = None,
        pause: float | None = None,
    ) -> AsyncIterator[StatusChange | LogLine | OutputChunk | None]:
        """Follow one job with all of its output; see `Client.follow`."""
        (job_id,) = checked_ids([job_id])
        return self._follow_output(OutputReading(job_id), log=log, timeout=timeout, pause=pause)

    async def logs(
        self,
        job_id: int,
        *,
        follow: bool = False,
        tail: int | None = None,
        stream: str | None = None,
        op: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[OutputChunk]:
        """The output of a job, live or archived, as it came; see `Client.logs`."""
        reading = checked_reading(job_id, stream=stream, op=op, tail=tail)
        if follow:
            async for part in self._follow_output(reading, log=False, timeout=timeout):
                if isinstance(part, OutputChunk):
                    yield part
            return
        # An error if there is no such job: of that the pages say nothing.
        job = await anext(self.jobs([job_id], timeout=timeout))
        while not reading.is_done:
            for chunk in reading.take(await self._call(reading.request(), timeout)):
                yield chunk
        for chunk in reading.finish() if job.is_final else ():
            yield chunk

    async def cancel(
        self, job_id: int, *, kill: bool = False, timeout: float | None = None
    ) -> CancelOutcome:
        """Cancel a job that has not started; says whether that was accepted.

        With ``kill`` also one that runs: its command gets SIGTERM, then SIGKILL.
        """
        (job_id,) = checked_ids([job_id])
        return await self._call(CancelJob(id=job_id, kill=kill), timeout)

    async def set_priority(
        self, job_id: int, priority: int, *, timeout: float | None = None
    ) -> PriorityOutcome:
        """Change the priority (-20, most urgent, to 19) of what has not started."""
        (job_id,) = checked_ids([job_id])
        asked = ChangeJobPriority(id=job_id, priority=requests.checked_priority(priority))
        return await self._call(asked, timeout)

    async def archive(self, job_id: int, *, timeout: float | None = None) -> ArchiveOutcome:
        """Move a job that has ended to the archive."""
        (job_id,) = checked_ids([job_id])
        return await self._call(ArchiveJob(id=job_id), timeout)

    async def autoarchive(self, age: float, *, timeout: float | None = None) -> ArchiveOutcome:
        """Archive the jobs that ended more than ``age`` seconds ago; see `Client.autoarchive`."""
        seconds = self._timeout if timeout is None else timeout
        message = AutoArchiveJobs(
            age_seconds=requests.checked_age(age), timeout_seconds=seconds * 0.8
        )
        return await self._call(message, timeout)

    async def retry(
        self,
        job_id: int,
        *,
        whole: bool = False,
        ops: requests.Ops | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> int:
        """Submit a new job like an ended one and return its id; each of the two names the other.

        It begins with the first opcode that did not succeed, with ``whole`` with the first one.
        ``ops`` replaces its opcodes.
        """
        (job_id,) = checked_ids([job_id])
        replaced = None if ops is None else requests.checked_ops(ops, "ops")
        message = RetryJob(id=job_id, is_whole=whole, ops=replaced, key=key or requests.fresh_key())
        return requests.submitted(await self._call(message, timeout), 1)[0]

    async def drain(self, *, drained: bool = True, timeout: float | None = None) -> None:
        """Refuse submissions from now on (also after a restart), or take them again."""
        await self._call(SetDrain(is_drained=drained), timeout)

    async def limits(
        self,
        *,
        running: int | None = None,
        tracked: int | None = None,
        timeout: float | None = None,
    ) -> LimitsRead:
        """The limits of the queue, after changing those that are given."""
        return await self._call(requests.limits(running, tracked), timeout)

    async def simulate(
        self,
        *,
        rule: Mapping[str, Any] | None = None,
        without: str | None = None,
        priorities: Mapping[int, int] | None = None,
        running: int | None = None,
        ended: Mapping[int, str] | None = None,
        timeout: float | None = None,
    ) -> Simulated:
        """What would start now, wait and be rejected, if all this were so. Changes nothing.

        ``rule`` has the arguments of `add_filter`, or is one that was listed; the rule with the
        UUID ``without`` would be gone, ``priorities`` be changed, ``running`` the number of run
        slots, and the jobs ``ended`` have ended with the given statuses. A rule without a UUID is
        called ``ffffffff-ffff-ffff-ffff-ffffffffffff`` in the answer.
        """
        message = requests.simulation(
            rule, without=without, priorities=priorities, running=running, ended=ended
        )
        return await self._call(message, timeout)

    async def test_filters(
        self,
        rule: Mapping[str, Any] | None = None,
        *,
        without: str | None = None,
        timeout: float | None = None,
    ) -> list[RuleTest]:
        """For each job that has not ended: which rule applies to it, and which would.

        ``rule`` and ``without`` as for `simulate`. Nothing is changed.
        """
        message: TestFilters | None = requests.filter_test(rule, without)
        rows: list[RuleTest] = []
        while message is not None:
            reply = await self._call(message, timeout)
            rows += reply.rows
            message = requests.next_test(message, reply)
        return rows

    async def explain(self, job_id: int, *, timeout: float | None = None) -> JobExplained:
        """Why the job does not run: what holds it back, first things first, and what would help."""
        (job_id,) = checked_ids([job_id])
        return await self._call(ExplainJob(id=job_id), timeout)

    # Filter rules.

    async def add_filter(
        self,
        *,
        priority: int = 0,
        predicates: Sequence[Any] = (),
        action: str | Sequence[Any] = "CONTINUE",
        reason: requests.Reason = "",
        uuid: str | None = None,
        valid_from: float | None = None,
        valid_until: float | None = None,
        timeout: float | None = None,
    ) -> str:
        """Store a filter rule and return its UUID; when this returns the rule is in force.

        Rules are looked at by ``priority`` (lowest first), then age. The first whose
        ``predicates`` all match a job, and whose ``action`` is not ``CONTINUE``, applies to
        it. Actions: ``ACCEPT``, ``PAUSE``, ``REJECT``, ``CONTINUE``, ``["RATE_LIMIT", n]`` (also
        ``"RATE_LIMIT n"``).
        Predicates: ``["jobid", FILTER]``, ``["opcode", FILTER]``, ``["reason", FILTER]``. Outside
        of its window (seconds since the epoch) a rule does not apply.
        """
        message = requests.new_filter(
            uuid,
            (valid_from, valid_until),
            priority=priority,
            predicates=predicates,
            action=action,
            reason=reason,
        )
        return (await self._call(message, timeout)).uuid

    async def replace_filter(
        self,
        uuid: str,
        *,
        priority: int = 0,
        predicates: Sequence[Any] = (),
        action: str | Sequence[Any] = "CONTINUE",
        reason: requests.Reason = "",
        valid_from: float | None = None,
        valid_until: float | None = None,
        timeout: float | None = None,
    ) -> str:
        """As `add_filter`, in place of the rule with this UUID; without one it is a new rule."""
        return await self.add_filter(
            priority=priority,
            predicates=predicates,
            action=action,
            reason=reason,
            uuid=uuid,
            valid_from=valid_from,
            valid_until=valid_until,
            timeout=timeout,
        )

    async def delete_filter(self, uuid: str, *, timeout: float | None = None) -> None:
        """Delete a filter rule; when this returns it is no longer in force."""
        await self._call(requests.deleted_filter(uuid), timeout)

    async def filters(
        self, uuids: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[FilterRow]:
        """The filter rules, or those with these UUIDs, in the order in which they are looked at."""
        return (await self._call(requests.listed_filters(uuids), timeout)).filters

    # The daemon.

    async def info(self, *, timeout: float | None = None) -> DaemonInfo:
        """What daemon this is, and how it is."""
        return await self._call(ReadInfo(), timeout)

    async def locks(self, *, timeout: float | None = None) -> list[LockRow]:
        """Every lock that is held or wanted, then every job that others wait for (``job/ID``)."""
        rows = (await self._call(ListLocks(), timeout)).rows
        return rows + (await self._call(ListDependencies(), timeout)).rows

    async def stop(self, *, timeout: float | None = None) -> None:
        """Stop the daemon; running jobs go on."""
        # The connection may end before the answer has come out: then it has stopped as well.
        with contextlib.suppress(ConnectionLostError):
            await self._call(StopDaemon(), timeout)

    # How it is done.

    async def _call(self, message: Request[ReplyT], timeout: float | None) -> ReplyT:
        self._check_open()
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._places.acquire()
        except TimeoutError as error:
            raise errors.DeadlineError("too many other calls were under way") from error
        try:
            now = time.monotonic()
            call = self._connection.session.request(message, now=now, deadline=deadline)
            await self._until_done(call)
            return call.result()
        finally:
            self._places.release()

    async def _until_done(self, exchange: Exchange) -> None:
        done = asyncio.Event()
        exchange.changed = done.set
        try:
            self._pump()
            await done.wait()
        finally:
            self._connection.session.forget(exchange)

    async def _list(
        self, pages: list[ListJobs], *, is_whole: bool, timeout: float | None
    ) -> AsyncIterator[JobInfo]:
        for first in pages:
            request: ListJobs | None = first
            while request is not None:
                reply = await self._call(request, timeout)
                if is_whole:
                    async for job in self._read_whole([row.id for row in reply.rows], timeout):
                        yield job
                else:
                    for row in reply.rows:
                        yield requests.summary_view(row)
                request = requests.next_page(request, reply)

    async def _read_whole(self, ids: list[int], timeout: float | None) -> AsyncIterator[JobInfo]:
        for start in range(0, len(ids), CALLS_AT_ONCE):
            some = ids[start : start + CALLS_AT_ONCE]
            calls = (self._call(ReadJob(id=job_id), timeout) for job_id in some)
            for document in await asyncio.gather(*calls):
                yield requests.document_view(document)

    async def _follow(
        self,
        ids: list[int] | None,
        *,
        log: bool,
        timeout: float | None,
        is_of_ends: bool = False,
        pause: float | None = None,
    ) -> AsyncIterator[Part | None]:
        self._check_open()
        session = self._connection.session
        now = time.monotonic()
        deadline = None if timeout is None else now + timeout
        stream = session.watch(ids, log=log, now=now, deadline=deadline, is_of_ends=is_of_ends)
        news = asyncio.Event()
        stream.changed = news.set
        try:
            while True:
                part = session.next_part(stream, time.monotonic())
                if part is not None:
                    yield part
                elif not stream.is_done:
                    news.clear()
                    self._pump()
                    if not await _happened(news, pause) and session.is_connected:
                        yield None
                elif stream.error is not None:
                    raise stream.error
                else:
                    return
        finally:
            session.forget(stream)
            if not self._is_closed:
                self._pump()

    async def _follow_output(
        self,
        reading: OutputReading,
        *,
        log: bool,
        timeout: float | None,
        pause: float | None = None,
    ) -> AsyncIterator[StatusChange | LogLine | OutputChunk | None]:
        self._check_open()
        session = self._connection.session
        now = time.monotonic()
        following = OutputFollowing(
            session,
            reading,
            log=log,
            now=now,
            deadline=None if timeout is None else now + timeout,
            timeout_seconds=self._timeout,
        )
        news = asyncio.Event()
        following.call_when_changed(news.set)
        try:
            while True:
                news.clear()
                part = following.take(time.monotonic())
                if part is not None:
                    yield part
                elif following.is_over:
                    return
                else:
                    self._pump()
                    if not await _happened(news, pause) and session.is_connected:
                        yield None
        finally:
            for exchange in following.exchanges:
                session.forget(exchange)
            if not self._is_closed:
                self._pump()

    def _check_open(self) -> None:
        if self._is_inherited:
            raise RuntimeError(forks.INHERITED)
        if self._is_closed:
            raise RuntimeError("the client was closed")

    def _pump(self) -> None:
        """Have the task look at what is new, or start it."""
        if self._is_inherited:
            raise RuntimeError(forks.INHERITED)
        line = self._connection.open_line
        if self._pumping is None or self._pumping.done():
            if not self._is_idle():
                self._pumping = asyncio.get_running_loop().create_task(self._pump_until_idle())
        elif line is not None:
            line.interrupt()

    async def _pump_until_idle(self) -> None:
        try:
            while not self._is_idle():
                now = time.monotonic()
                line = self._connection.line(now)
                self._connection.work(line, now)
                if self._is_idle():
                    return
                item = await line.receive(self._connection.wait_seconds(now))
                if item is not None:
                    self._connection.take(item, time.monotonic())
        except Exception as error:  # noqa: BLE001 - it is raised again, where somebody waits
            self._connection.session.fail_all(error)

    def _is_idle(self) -> bool:
        return self._connection.session.is_idle


async def _happened(news: asyncio.Event, seconds: float | None) -> bool:
    """Wait for news, if ``seconds`` are given for so long; whether there are any."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return False
    return True
