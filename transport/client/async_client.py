"""The client library for asyncio: the verbs of `client.Client`, as coroutines.

>>> async def backup() -> None:
...     async with AsyncClient() as client:
...         job_id = await client.submit({"OP_ID": "OP_EXEC", "argv": ["make", "backup"]})
...         async for part in client.watch(job_id):
...             print(part)

docs/make_client.py makes `client` from this file: run it after a change.
"""

# ruff: noqa: ASYNC109 - the deadline of a call is told to the daemon, so each verb has one
from __future__ import annotations

import functools
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, overload

from ...storage import settings
from ...storage.jobs.job_filters import JobFilter
from ...storage.jobs.job_views import (
    JobChange,
    JobInfo,
    ListingProgress,
    LogLine,
    OutputChunk,
    StatusChange,
    job_info,
)
from ...storage.jobs.jobs import check_id
from ...storage.jobs.origins import Submitter
from ...storage.queue_files import spool
from ..messages import (
    FindJobs,
    JobSpec,
    ReadJob,
    StoreInput,
)
from ..zmq.async_dealer import AsyncDealer
from . import query_requests, requests, spans
from .async_caller import AsyncCaller
from .async_cluster_verbs import AsyncClusterVerbs
from .async_queue_verbs import AsyncQueueVerbs
from .async_streams import AsyncStreams
from .connection import Connection, EndpointResolver, client_pair
from .output_reading import OutputReading, checked_reading


class AsyncClient(AsyncQueueVerbs, AsyncClusterVerbs):
    """A connection to a daemon.

    Without arguments it finds the local daemon: of ``data``, else ``GANGER_DATA``, else of
    the default data directory. ``endpoint`` names another one: ``tcp://HOST:PORT`` needs
    ``key_file`` (made by ``ganger key``) and the daemon's public key, ``server_key``, unless
    the file holds it.

    ``timeout`` is the deadline, in seconds, of each call that gives none of its own. When
    the daemon restarts, calls go on with its successor; without a daemon they end in
    `DaemonUnreachableError`. ``on_outage`` is called with a sentence, for people, when the daemon
    has been gone for a second while something is under way, or has not answered a watch for as
    long as a call may take, and when it is back; it must neither raise nor use the client.

    Any number of tasks of one event loop may use a client at the same time. A forked process
    cannot use a client of its parent: each verb raises `RuntimeError`.
    """

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
        self._timeout = timeout = spans.checked(timeout, "timeout")
        connect = functools.partial(
            Connection,
            AsyncDealer,
            EndpointResolver(data, endpoint),
            client_pair(endpoint, key_file, server_key),
            timeout_seconds=timeout,
            on_outage=on_outage,
        )
        self._caller = AsyncCaller(connect, timeout)
        self._streams = AsyncStreams(self._caller, timeout)

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
        await self._caller.close()

    # Jobs.

    async def submit(
        self,
        ops: requests.Ops,
        *,
        reason: requests.Reason | None = None,
        priority: int | None = None,
        depends: Sequence[requests.Dependency] | None = None,
        name: str | None = None,
        key: str | None = None,
        dry_run: bool = False,
        submitter: Submitter | None = None,
        timeout: float | None = None,
    ) -> int:
        """Submit one job and return its id: the job is on disk then, and survives a restart.

        ``ops`` is one opcode or a list of them. ``depends`` names jobs that must succeed first, or
        pairs such as ``[17, ["success", "error"]]``. By its ``name`` the job is found
        again (`find`). A second submission with the same ``key`` stores nothing and gives the id of
        the first. ``dry_run`` only checks, and returns 0. The daemon finds out who submits; it
        listens to ``submitter`` from its own remote API only.
        """
        job = JobSpec(ops=requests.checked_ops(ops, "ops"))
        ids = await self.submit_many(
            [job],
            reason=reason,
            priority=priority,
            depends=depends,
            name=name,
            key=key,
            dry_run=dry_run,
            submitter=submitter,
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
        name: str | None = None,
        plan: str | None = None,
        key: str | None = None,
        dry_run: bool = False,
        submitter: Submitter | None = None,
        timeout: float | None = None,
    ) -> list[int]:
        """Submit jobs and return their ids in order: all or none, but for what rules reject.

        A job is its opcodes, or a dictionary of ``ops``, ``name``, ``reason``, ``priority`` and
        ``depends``, where -1 stands for the job before it in the list. The arguments fill in
        missing keys. ``plan`` is the name of all of them together. ``submitter`` as in `submit`.

        If a filter rule rejects some of the jobs, these and the jobs that depend on them are not
        stored, and the others are. Then `RejectedError` is raised: its ``ids`` has the id of each
        stored job, and None in the place of each other one.
        """
        message = requests.submission(
            jobs,
            reason=reason,
            priority=priority,
            depends=depends,
            key=requests.fresh_key() if key is None and not dry_run else key,
            dry_run=dry_run,
            now_nanoseconds=time.time_ns(),
            name=name,
            plan=plan,
            submitter=submitter,
        )
        return requests.submitted(await self._caller.call(message, timeout), len(jobs))

    async def store_input(self, parts: Iterable[bytes], *, timeout: float | None = None) -> str:
        """Send a standard input of any size; the ``stdin_file`` for the opcode that gets it.

        The job must be submitted within an hour, to the daemon that has got the input.
        ``timeout`` is the deadline of each part.
        """
        token, offset, before = requests.fresh_key(), 0, b""
        for part in requests.input_parts(parts):
            if before:
                offset = await self._send_input(token, offset, before, timeout)
            before = part
        await self._send_input(token, offset, before, timeout, is_last=True)
        return spool.upload_name(token)

    async def _send_input(
        self,
        token: str,
        offset: int,
        data: bytes,
        timeout: float | None,
        *,
        is_last: bool = False,
    ) -> int:
        message = StoreInput(token=token, offset=offset, data=data, is_last=is_last)
        return (await self._caller.call(message, timeout)).size

    async def find(self, *names: str, timeout: float | None = None) -> list[list[int]]:
        """The ids of the newest job of each name, or of all jobs of the newest plan; [] for none.

        ``@last`` is the newest job that the user of this client has submitted.
        """
        if not names:
            return []
        message = FindJobs(names=requests.checked_names(names))
        return (await self._caller.call(message, timeout)).found

    def jobs(
        self,
        ids: Iterable[int] | None = None,
        fields: Collection[str] | None = None,
        statuses: Collection[str] | None = None,
        *,
        archived: bool = False,
        wanted: JobFilter | None = None,
        last: int | None = None,
        timeout: float | None = None,
        progress: Callable[[ListingProgress], None] | None = None,
    ) -> AsyncIterator[JobInfo]:
        """All jobs, or those with these ``ids``, in id order.

        ``wanted``: only those that meet its conditions. ``last``: only the newest so many, the
        newest first. Without ``fields`` a job has its summary only. With ``ops`` or ``depends``
        among them whole jobs are read. ``timeout`` is the deadline of each page. ``progress`` hears
        of each page: a search among many archived jobs takes a while, and lacks those that are not
        in the index of the archive while that is built.
        """
        is_whole = requests.needs_whole(fields)
        checked = None if ids is None else [*map(check_id, ids)]
        pages = list(
            requests.listings(checked, statuses, archived=archived, wanted=wanted, last=last)
        )
        limit = last if ids is None else None
        return self._streams.jobs(
            pages, is_whole=is_whole, limit=limit, timeout=timeout, progress=progress
        )

    async def job(self, job_id: int, *, timeout: float | None = None) -> JobInfo:
        """The whole of one job, live or archived."""
        found = await self._caller.call(ReadJob(id=check_id(job_id)), timeout)
        return job_info(
            found.body,
            archived=found.archived,
            summary=found.summary,
            output_removed=found.output_removed,
        )

    async def wait(
        self,
        *ids: int,
        timeout: float | None = None,
        fields: Collection[str] | None = None,
    ) -> list[JobInfo]:
        """Wait until these jobs have ended and return them whole, in the order given.

        `DeadlineError` names the jobs that have not ended after ``timeout`` seconds; None sets no
        limit. With ``fields`` as in `jobs`, only those are fetched.
        """
        is_whole = fields is None or requests.needs_whole(fields)
        final: dict[int, JobInfo] = {}
        if ids:
            checked = [*map(check_id, ids)]
            parts = self._streams.follow(checked, log=False, timeout=timeout, is_final_only=True)
            async for part in parts:
                if isinstance(part, StatusChange):
                    final[part.job_id] = part.job
        if is_whole:
            final = {job.id: job async for job in self._streams.whole_jobs(list(final), None)}
        return [final[job_id] for job_id in ids]

    @overload
    def watch(
        self,
        *ids: int,
        log: bool = True,
        timeout: float | None = None,
        pause: None = None,
        gathered: bool = False,
    ) -> AsyncIterator[StatusChange | LogLine]: ...

    @overload
    def watch(
        self,
        *ids: int,
        log: bool = True,
        timeout: float | None = None,
        pause: float,
        gathered: bool = False,
    ) -> AsyncIterator[StatusChange | LogLine | None]: ...

    def watch(
        self,
        *ids: int,
        log: bool = True,
        timeout: float | None = None,
        pause: float | None = None,
        gathered: bool = False,
    ) -> AsyncIterator[StatusChange | LogLine | None]:
        """Follow these jobs (all jobs, for ever, if none is named): status changes and log lines.

        First comes the present status of each job, and its log so far unless ``log`` is false. The
        iterator ends when all jobs have ended, with `DeadlineError` after ``timeout`` seconds.
        Other calls may be made between two parts. A reader that falls far behind gets the jobs as
        they then are, without the statuses in between.

        With ``pause``, None comes after each so many seconds in which the daemon was there and
        sent nothing. With ``gathered``, changes come up to 10 ms later: the daemon sends many
        together, which costs it and this process less.
        """
        checked = [*map(check_id, ids)] if ids else None
        return self._streams.follow(
            checked, log=log, timeout=timeout, pause=pause, is_gathered=gathered
        )

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
        """Follow one job as `watch` does, with all of its output as it comes.

        The log comes without its lines of output. A slow reader loses no output. The final status
        comes last.
        """
        job_id = check_id(job_id)
        return self._streams.follow_output(
            OutputReading(job_id), log=log, timeout=timeout, pause=pause
        )

    @overload
    def logs(
        self,
        job_id: int,
        *,
        follow: bool = False,
        tail: int | None = None,
        stream: str | None = None,
        op: int | None = None,
        messages: Literal[False] = False,
        timeout: float | None = None,
    ) -> AsyncIterator[OutputChunk]: ...

    @overload
    def logs(
        self,
        job_id: int,
        *,
        follow: bool = False,
        tail: int | None = None,
        stream: str | None = None,
        op: int | None = None,
        messages: bool,
        timeout: float | None = None,
    ) -> AsyncIterator[OutputChunk | LogLine]: ...

    def logs(
        self,
        job_id: int,
        *,
        follow: bool = False,
        tail: int | None = None,
        stream: str | None = None,
        op: int | None = None,
        messages: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[OutputChunk] | AsyncIterator[OutputChunk | LogLine]:
        """The output of a job, live or archived, in the order in which the job wrote it.

        With ``follow`` it goes on until the job has ended, and waits for a job that has not begun;
        ``timeout`` then limits the whole, otherwise each page. ``tail`` begins with the last so
        many lines. ``stream`` (``stdout`` or ``stderr``) and ``op`` (an opcode, from 0) choose.
        A chunk with a ``gap`` marks missing output. With ``messages`` what the job has logged
        beside its output (messages, tracebacks) comes in its place.
        """
        reading = checked_reading(job_id, stream=stream, op=op, tail=tail)
        if messages:
            return self._streams.output_and_log(reading, timeout, follow=follow)
        if not follow:
            return self._streams.output(reading, timeout)
        return self._streams.output_as_it_comes(reading, timeout)

    async def await_change(
        self,
        job_id: int,
        fields: Sequence[str],
        values: Sequence[Any] | None = None,
        *,
        log_serial: int | None = None,
        seconds: float = 30.0,
        timeout: float | None = None,
    ) -> JobChange:
        """Fields of a live job when they are others than ``values``, or its log has grown.

        The reply comes at once if that is so already or the job has ended, and after ``seconds``
        at the latest. ``log_serial`` is the serial of the last log entry that the caller has. Go on
        with the values and the serial of the reply. ``fields`` are those of `query`; if one is
        unknown, all values are None. Without a ``timeout``, the client's own one begins after
        ``seconds``. `UnknownJobError`: there is no such job, or it is archived.
        """
        job_id = check_id(job_id)
        asked = query_requests.awaited_change(job_id, fields, values, log_serial, seconds)
        limit = self._timeout + asked.seconds if timeout is None else timeout
        return query_requests.job_change(await self._caller.call(asked, limit, is_lasting=True))
