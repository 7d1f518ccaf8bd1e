"""D1: the daemon is killed at each system call from a request's arrival to the job's end.

First each `Variant` is run once without a fault, and its calls that write, flush, rename,
create or answer are recorded. Then each of them becomes a kill: instead of the call, or when
it has been carried out and has not returned yet. The successor of a killed daemon must have
every acknowledged job, run it once, and give out higher ids; it is killed next.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import select
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from tests.torture.kills.workload import Broken
from tests.torture.system_calls import strace
from tests.torture.system_calls.strace import DirectDaemon, Point, Tracer
from tests.torture.tally import Tally

from ganger import GangerError, JobStatus
from ganger.transport.client.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

One = TypeVar("One")

CALLS = (
    "write", "writev", "pwrite64", "sendto", "sendmsg", "fdatasync", "fsync", "syncfs", "rename",
    "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir", "openat", "ftruncate",
)  # fmt: skip
"""Those that write, flush, rename, create or answer; of `openat`, only what creates counts."""

WAIT_SECONDS = 60.0
IMPATIENT_SECONDS = 0.5

END_SECONDS = 5.0
"""How long a process that was killed may take to end."""

NOT_REACHED_MAX = 3
"""How many points may be passed without being reached, for each kill that is wanted."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """What is going on when the daemon is killed: submissions, by the number of their jobs."""

    name: str
    batches: tuple[int, ...] = (1,)
    limits: str = ""
    archives: bool = False
    """Whether the jobs are archived when they have ended."""
    begins: bool = False
    """Whether the daemon is only beginning, after one that had just acknowledged the jobs."""


VARIANTS = (
    Variant(name="one job"),
    Variant(name="batch of 3", batches=(3,)),
    Variant(name="two at once", batches=(1, 1)),
    Variant(name="new segment", limits="JOURNAL_SEGMENT_BYTES=1"),
    Variant(name="archive", archives=True),
    Variant(name="begin", batches=(3,), begins=True),
)


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, and what is done about it."""

    variant: Variant
    point: Point
    after: bool
    """Whether the call is carried out; otherwise the kill comes instead of it."""
    is_repeated: bool
    """Whether the clients go on until they have an answer; otherwise they give up."""
    loses_serial: bool
    """Whether the serial file is deleted before the daemon is started again."""

    def __str__(self) -> str:
        when = "after" if self.after else "at"
        doing = "clients repeat" if self.is_repeated else "clients give up"
        lost = ", serial file lost" if self.loses_serial else ""
        return f"{self.variant.name}: {when} {self.point}, {doing}{lost}"


class FollowedSubmission:
    """One client's submission, followed to the end of its jobs on a thread of its own."""

    def __init__(self, daemon: DirectDaemon, jobs: list[Any], key: str, done: int) -> None:
        self.jobs, self.key = jobs, key
        self.ids: list[int] = []
        self.archives = False
        self.submit_seconds = WAIT_SECONDS
        self.is_answered = threading.Event()
        self.client = daemon.client()
        # Connected before strace counts, so that each run makes the same calls.
        self.client.info(timeout=WAIT_SECONDS)
        self._done = done
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        """Submit; says on ``done`` when the jobs have ended, or when that cannot be known."""
        self._thread.start()

    def end(self) -> None:
        """Wait for the client."""
        self._thread.join(2 * WAIT_SECONDS)
        assert not self._thread.is_alive(), "the client hangs"
        self.client.close()

    def _run(self) -> None:
        # The client asks the successor for a missing reply; an error here is no verdict.
        with contextlib.suppress(GangerError):
            try:
                self.ids = self.client.submit_many(
                    self.jobs, key=self.key, timeout=self.submit_seconds
                )
            finally:
                self.is_answered.set()
            self.client.wait(*self.ids, timeout=WAIT_SECONDS)
            if self.archives:
                self.client.autoarchive(-1.0, timeout=WAIT_SECONDS)
        os.eventfd_write(self._done, 1)


class KillStage:
    """One data directory, a daemon in it that is killed again and again, and its clients."""

    def __init__(self, folder: Path) -> None:
        self.daemon = DirectDaemon(folder)
        self.acknowledged = 0
        """How many kills came when a client had its ids already."""
        self._witnesses = folder / "witnesses"
        self._witnesses.mkdir(parents=True)
        self._numbers = itertools.count(1)
        self._last_id = 0
        self._done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE)

    def record(self, variant: Variant) -> list[Point]:
        """The calls of a run without a fault."""
        self._prepare(variant)
        words = strace.tracing(CALLS)
        if variant.begins:
            submissions = self._submissions(variant)
            self._acknowledge(submissions)
            self.daemon.kill()
            with self._at_the_gate() as (gate, ready):
                threads = self.daemon.threads()
                with Tracer(threads.values(), words, follows=False) as tracer:
                    gate.send(b"go")
                    assert os.read(ready, 64) == b"ready\n"
        else:
            submissions = self._submissions(variant)
            threads = self.daemon.threads()
            with Tracer(threads.values(), words, follows=False) as tracer:
                for submission in submissions:
                    submission.begin()
                for _ in submissions:
                    os.eventfd_read(self._done)
        for submission in submissions:
            submission.end()
        return [
            point
            for point, arguments in strace.points(tracer.lines, threads)
            if point.call != "openat" or "O_CREAT" in arguments
        ]

    def kill(self, kill: Kill) -> Broken | None:
        """Kill the daemon there, and judge its successor; None: it did not come to that."""
        self._prepare(kill.variant)
        submissions = self._submissions(kill.variant)
        for submission in submissions:
            if not kill.is_repeated:
                submission.submit_seconds = IMPATIENT_SECONDS
        if kill.variant.begins:
            is_killed = self._kill_beginning(kill, submissions)
        else:
            is_killed = self._kill_working(kill, submissions)
        self.acknowledged += is_killed and any(submission.ids for submission in submissions)
        if not kill.is_repeated:
            for submission in submissions:
                submission.is_answered.wait(WAIT_SECONDS)
        if is_killed:
            if kill.loses_serial:
                (self.daemon.places.queue / "serial").unlink(missing_ok=True)
            self.daemon.up()
        for submission in submissions:
            submission.end()
        self._drain()
        broken = self._judge(submissions, is_repeated=kill.is_repeated)
        return broken if is_killed else None

    def close(self) -> None:
        """End every process."""
        self.daemon.__exit__()
        os.close(self._done)

    # ------------------------------------------------------------ what is done

    def _prepare(self, variant: Variant) -> None:
        if self.daemon.is_up and self.daemon.limits == variant.limits:
            return
        if self.daemon.is_up:
            self.daemon.kill()
        self.daemon.limits = variant.limits
        self.daemon.up()

    def _submissions(self, variant: Variant) -> list[FollowedSubmission]:
        submissions = []
        for size in variant.batches:
            jobs = [self._job(next(self._numbers)) for _ in range(size)]
            key = f"key-{next(self._numbers)}"
            submission = FollowedSubmission(self.daemon, jobs, key, self._done)
            submission.archives = variant.archives
            submissions.append(submission)
        return submissions

    def _job(self, number: int) -> dict[str, Any]:
        return {
            "OP_ID": "OP_EXEC",
            "argv": ["sh", "-c", f"echo ran >> {self._witnesses}/{number}"],
            "locks": {"node": {"exclusive": ["n1"]}},
        }

    def _kill_working(self, kill: Kill, submissions: list[FollowedSubmission]) -> bool:
        thread = self.daemon.threads()[kill.point.thread]
        with self._armed(thread, kill) as tracer:
            for submission in submissions:
                submission.begin()
            self._wait(self._done, len(submissions))
        return self._is_killed(kill, tracer)

    def _kill_beginning(self, kill: Kill, submissions: list[FollowedSubmission]) -> bool:
        self._acknowledge(submissions)
        self.daemon.kill()
        with self._at_the_gate() as (gate, ready):
            thread = self.daemon.threads()[kill.point.thread]
            with self._armed(thread, kill) as tracer:
                gate.send(b"go")
                self._wait(ready, 1)
        return self._is_killed(kill, tracer)

    def _acknowledge(self, submissions: list[FollowedSubmission]) -> None:
        for submission in submissions:
            submission.begin()
            submission.is_answered.wait(WAIT_SECONDS)

    @contextlib.contextmanager
    def _at_the_gate(self) -> Iterator[tuple[socket.socket, int]]:
        """A daemon that is about to read its directory: its gate, and where it says ready."""
        ours, theirs = socket.socketpair()
        ours.settimeout(WAIT_SECONDS)
        with ours:
            with theirs:
                ready = self.daemon.start(theirs.fileno())
            try:
                assert ours.recv(16) == b"here"
                yield ours, ready
            finally:
                os.close(ready)

    @contextlib.contextmanager
    def _armed(self, thread: int, kill: Kill) -> Iterator[Tracer]:
        """While strace waits for the point."""
        pid = self.daemon.pid()

        def look(line: str) -> None:
            if strace.is_held(line):
                os.kill(pid, signal.SIGKILL)
                # Its dead thread is held as well, until strace lets go.
                tracer.kill()

        words = strace.killing(kill.point.call, kill.point.number, after=kill.after)
        tracer = Tracer([thread], words, on_line=look)
        with tracer:
            yield tracer

    def _wait(self, done: int, count: int) -> None:
        """Until the daemon has ended, or ``done`` was readable ``count`` times."""
        pidfd = self.daemon.open_pidfd()
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.register(done, select.POLLIN)
            while count:
                ready = dict(poll.poll(WAIT_SECONDS * 1_000))
                assert ready, "the daemon neither died nor did its work"
                if pidfd in ready:
                    return
                count -= bool(os.read(done, 8))
        finally:
            os.close(pidfd)

    def _is_killed(self, kill: Kill, tracer: Tracer) -> bool:
        """Whether the point was reached; the daemon has ended then.

        What strace saw decides: the work may have been done just before the end.
        """
        if kill.after:
            is_reached = any(map(strace.is_held, tracer.lines))
        else:
            made = [line for line in tracer.lines if strace.BEGUN.match(line)]
            is_reached = len(made) >= kill.point.number
        # Work that was done just then made strace let go, which may be before it killed.
        is_killed = is_reached and self.daemon.has_ended(END_SECONDS)
        if is_killed:
            self.daemon.reap()
        return is_killed

    def _drain(self) -> None:
        poll = select.poll()
        poll.register(self._done, select.POLLIN)
        while poll.poll(0):
            os.eventfd_read(self._done)

    # ------------------------------------------------------------ what is promised

    def _judge(self, submissions: list[FollowedSubmission], *, is_repeated: bool) -> Broken:
        broken = Broken()
        with self.daemon.client() as client:
            known: list[int] = []
            for submission in submissions:
                known += self._judge_one(client, submission, broken, is_repeated=is_repeated)
            probe = client.submit(self._job(next(self._numbers)))
            if known and min(known) <= self._last_id:
                broken.others.append(f"ids {known} were given out after {self._last_id}")
            if probe <= max(known, default=self._last_id):
                broken.others.append(f"id {probe} was given out after {known}")
            self._last_id = probe
            client.wait(probe, timeout=WAIT_SECONDS)
            if rows := client.locks():
                broken.others.append(f"locks are left: {rows}")
            if quarantined := client.info().quarantined:
                broken.others.append(f"quarantined: {quarantined}")
            client.autoarchive(-1.0)
        return broken

    def _judge_one(
        self, client: Client, submission: FollowedSubmission, broken: Broken, *, is_repeated: bool
    ) -> list[int]:
        """Judge one submission; returns the ids of its jobs, as they are known now."""
        given = submission.ids
        # A key is forgotten when its jobs are archived: asking again would be a new request.
        if is_repeated and not (given and submission.archives):
            ids = client.submit_many(submission.jobs, key=submission.key)
        else:
            ids = given or self._found(client, submission)
        if given and ids != given:
            broken.others.append(f"its key gave the ids {given}, and then {ids}")
        if len(ids) not in (0, len(submission.jobs)):
            broken.others.append(f"{len(ids)} of {len(submission.jobs)} jobs were stored")
        for place, job in enumerate(submission.jobs):
            runs = 1
            if ids and not self._is_right(client, ids[place], job, broken):
                broken.lost += 1
            elif not ids:
                runs = 0
            self._judge_runs(job, runs, broken)
        return ids

    def _found(self, client: Client, submission: FollowedSubmission) -> list[int]:
        """The ids of jobs without a reply, which may have been stored all the same."""
        wanted = [job["argv"] for job in submission.jobs]
        recent = [info.id for info in client.jobs() if info.id > self._last_id]
        if not recent:
            return []
        return [
            info.id
            for info in client.jobs(recent, fields=("ops",))
            if info.ops is not None and info.ops[0].input["argv"] in wanted
        ]

    def _is_right(self, client: Client, job_id: int, job: dict[str, Any], broken: Broken) -> bool:
        """Whether the job with this id is that job, and has ended well."""
        try:
            client.wait(job_id, timeout=WAIT_SECONDS)
            info = client.job(job_id)
        except GangerError as error:
            broken.others.append(f"job {job_id}: {error!r}")
            return False
        assert info.ops is not None
        if info.ops[0].input["argv"] != job["argv"]:
            broken.others.append(f"job {job_id} is another one: {info.ops[0].input}")
            return False
        if info.status is not JobStatus.SUCCESS:
            broken.others.append(f"job {job_id} ended in {info.status}: {info.ops[0].result}")
        return True

    def _judge_runs(self, job: dict[str, Any], wanted: int, broken: Broken) -> None:
        path = self._witnesses / job["argv"][-1].rpartition("/")[2]
        runs = len(path.read_text().splitlines()) if path.exists() else 0
        if runs > 1:
            broken.doubled += 1
        elif runs < wanted:
            broken.lost += 1
        elif runs > wanted:
            broken.others.append("a job ran that is not there")


class KillCampaign:
    """Goes through the points of every variant, in an order that ``seed`` decides."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.tally = Tally()
        self._seed = seed
        self._chance = random.Random(seed)
        self._folder = folder
        self._stages = itertools.count(1)
        self._acknowledged = 0
        self._points: dict[str, int] = {}
        self.stage = KillStage(folder / "1")

    def run(self, count: int) -> None:
        """Kill the daemon ``count`` times."""
        not_reached = 0
        for number, kill in enumerate(self._kills()):
            if self.tally.injected >= count or number > NOT_REACHED_MAX * count + len(VARIANTS):
                break
            text = f"seed {self._seed} kill {number}: {kill}"
            try:
                broken = self.stage.kill(kill)
            except Exception as error:  # noqa: BLE001 - the next ones shall be tried all the same
                self.tally.failed(f"{text}: {strace.describe(error)}")
                self._begin_afresh()
                continue
            if broken is None:
                not_reached += 1
            elif broken.others:
                self.tally.lost += broken.lost
                self.tally.doubled += broken.doubled
                self.tally.failed(f"{text}: {'; '.join(broken.others)}")
            else:
                self.tally.judge(text, lost=broken.lost, doubled=broken.doubled)
        self._acknowledged += self.stage.acknowledged
        self.tally.figures["points"] = ", ".join(
            f"{name} {count}" for name, count in self._points.items()
        )
        self.tally.figures["acknowledged before the kill"] = str(self._acknowledged)
        self.tally.figures["not reached"] = str(not_reached)

    def _kills(self) -> Iterator[Kill]:
        """From each variant in turn, until all of its points were taken; then all again."""
        while True:
            yield from in_turns([self._kills_of(variant) for variant in VARIANTS])

    def _kills_of(self, variant: Variant) -> Iterator[Kill]:
        points = self.stage.record(variant)
        self._points[variant.name] = len(points)
        faults = list(itertools.product(points, (False, True)))
        self._chance.shuffle(faults)
        for point, after in faults:
            yield Kill(
                variant=variant,
                point=point,
                after=after,
                is_repeated=self._chance.random() < 0.7,
                loses_serial=self._chance.random() < 0.3,
            )

    def _begin_afresh(self) -> None:
        self._acknowledged += self.stage.acknowledged
        self.stage.close()
        self.stage = KillStage(self._folder / str(next(self._stages) + 1))


def in_turns(sources: Iterable[Iterator[One]]) -> Iterator[One]:
    """One of each in turn, until all are used up."""
    left = list(sources)
    while left:
        for source in list(left):
            found = next(source, None)
            if found is None:
                left.remove(source)
            else:
                yield found


def run_kill_at_each_call(count: int, seed: int, folder: Path) -> Tally:
    """Kill the daemon ``count`` times, each time at another of its system calls."""
    campaign = KillCampaign(seed, folder)
    try:
        campaign.run(count)
    finally:
        campaign.stage.close()
    return campaign.tally
