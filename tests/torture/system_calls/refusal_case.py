"""One refused call: what is asked of the daemon before it, meanwhile and after it, and judged."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import resource
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
from tests.faults.harness import until
from tests.torture.system_calls import strace
from tests.torture.system_calls.refusal_stage import (
    ANY_DESCRIPTOR,
    WAIT_SECONDS,
    Refusal,
    RefusalStage,
)
from tests.torture.system_calls.strace import Tracer

from ganger import GangerError, JobStatus
from ganger.storage import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ganger.transport.client.client import Client


REQUEST_SECONDS = 5.0
RECOVERY_SECONDS = 10.0
LARGE = 80_000
_READ_ONLY_CODE = 74
"""Exit code of ``ganger status`` while the queue is read-only."""
"""Bytes in a job whose process flushes its own file, because the journal does not take it."""


class RequestOutcome(msgspec.Struct):
    """What became of one request: ``answer``, or ``error``."""

    what: str
    answer: Any = None
    error: GangerError | None = None


class Case:
    """One fault, from before it to after it."""

    def __init__(self, stage: RefusalStage, refusal: Refusal) -> None:
        self.problems: list[str] = []
        self.lost = 0
        self.doubled = 0
        self._stage, self._daemon, self._refusal = stage, stage.daemon, refusal
        self._acknowledged: list[tuple[int, dict[str, Any]]] = []
        self._refused: list[dict[str, Any]] = []
        self._doubtful: list[dict[str, Any]] = []
        self._injected = 0
        self._news = threading.Condition()

    def run(self) -> bool:
        """Whether the fault was put in; what was broken by it is in the attributes."""
        with self._daemon.client() as client:
            restarts = self._restarts(client)
            with self._gate() as gate:
                self._set_up(client, gate)
                with self._refusing():
                    outcomes = self._make_requests(client)
                    if self._refusal.lasts:
                        self._see_it_tried_again()
                        self._look_at_status(client, outcomes)
                        self._compare_views(client)
                    elif self._is_well(client):
                        self._wait_for_all(client)
                    if self._refusal.is_killed:
                        self._daemon.kill()
                if self._refusal.is_killed:
                    self._daemon.up()
                    restarts = {}
                is_well = self._is_well(client)
                if not is_well:
                    # What it had acknowledged must be there all the same.
                    if self._daemon.is_up:
                        self._daemon.kill()
                    self._daemon.up()
                self._wait_for_all(client)
                self._judge(client)
                if is_well and (now := self._restarts(client)) != restarts:
                    found = f"components were restarted: {now}, before: {restarts}"
                    self.problems += [found, *self._failures()]
        return self._injected > 0

    # ------------------------------------------------------------ before

    @contextlib.contextmanager
    def _gate(self) -> Iterator[Path]:
        """A pipe that holds a job until a line is written into it."""
        path = self._stage.folder / f"gate-{next(self._stage.numbers)}"
        os.mkfifo(path)
        # Open for both, so that neither side waits for the other.
        self._gate_descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        try:
            yield path
        finally:
            os.close(self._gate_descriptor)
            path.unlink()

    def _set_up(self, client: Client, gate: Path) -> None:
        """Jobs that were acknowledged before: ended, running, waiting, about to be canceled."""
        self._old = client.submit(job := self._stage.job())
        self._acknowledged.append((self._old, job))
        client.wait(self._old, timeout=WAIT_SECONDS)
        job = self._stage.job(command=f"read -r line < {gate}")
        job["locks"] = {"node": {"exclusive": ["n1"]}}
        runner = client.submit(job)
        self._acknowledged.append((runner, job))
        until(client, [runner], JobStatus.RUNNING, seconds=WAIT_SECONDS)
        for name in ("_waiter", "_victim"):
            job = self._stage.job(depends=runner)
            job_id = client.submit(job)
            setattr(self, name, job_id)
            self._acknowledged.append((job_id, job))

    _old = _waiter = _victim = 0

    # ------------------------------------------------------------ meanwhile

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        refusal = self._refusal
        if refusal.call == ANY_DESCRIPTOR:
            with self._no_descriptors():
                yield
            return
        is_job = refusal.target == "job"
        tasks = self._stage.job_tasks() if is_job else [self._daemon.pid()]
        paths = self._stage.paths(refusal.scope)
        words = strace.refusing([refusal.call], refusal.cause, refusal.when, paths)

        def look(line: str) -> bool:
            is_refused = strace.is_refused(line)
            if is_refused:
                with self._news:
                    self._injected += 1
                    self._news.notify_all()
            # strace counts for each thread, and the daemon makes some calls in a new one each time.
            # From a tree of processes that fork it cannot go safely while they do.
            return is_refused and not refusal.lasts and not is_job

        with Tracer(tasks, words, follows=True, on_line=look):
            yield

    @contextlib.contextmanager
    def _no_descriptors(self) -> Iterator[None]:
        """Leave the daemon those it has, and a few more at most."""
        pid = self._daemon.pid()
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        free = (number for number in itertools.count() if number not in used)
        first = next(itertools.islice(free, self._refusal.left, None))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (first, before[1]))
        self._injected += 1
        try:
            yield
        finally:
            if self._daemon.is_up:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    def _make_requests(self, client: Client) -> list[RequestOutcome]:
        large = LARGE if self._refusal.target == "job" else 0
        outcomes = [
            self._submit(client, [self._stage.job(size=large)]),
            self._submit(client, [self._stage.job(), self._stage.job()]),
            self._ask("cancel", lambda: client.cancel(self._victim, timeout=REQUEST_SECONDS)),
            self._ask(
                "priority", lambda: client.set_priority(self._waiter, 3, timeout=REQUEST_SECONDS)
            ),
            self._ask("archive", lambda: client.archive(self._old, timeout=REQUEST_SECONDS)),
            self._ask("read", lambda: client.job(self._waiter, timeout=REQUEST_SECONDS)),
        ]
        os.write(self._gate_descriptor, b"go\n")
        outcomes.append(self._submit(client, [self._stage.job(size=large)]))
        self._is_canceled = any(
            one.what == "cancel" and one.error is None and one.answer.accepted for one in outcomes
        )
        for one in outcomes:
            if one.error is not None:
                self._judge_error(one)
        return outcomes

    _is_canceled = False

    def _submit(self, client: Client, jobs: list[dict[str, Any]]) -> RequestOutcome:
        outcome = self._ask(
            "submit", lambda: client.submit_many([[job] for job in jobs], timeout=REQUEST_SECONDS)
        )
        if outcome.error is None:
            self._acknowledged += zip(outcome.answer, jobs, strict=True)
        elif isinstance(outcome.error, errors.TryAgainError | errors.OutcomeUnknownError):
            self._doubtful += jobs
        else:
            self._refused += jobs
        return outcome

    def _ask(self, what: str, ask: Callable[[], Any]) -> RequestOutcome:
        try:
            return RequestOutcome(what, answer=ask())
        except GangerError as error:
            return RequestOutcome(what, error=error)

    def _judge_error(self, outcome: RequestOutcome) -> None:
        error = outcome.error
        assert error is not None
        if not isinstance(error, errors.StorageError):
            self.problems.append(f"{outcome.what} was refused with {error!r}")
        elif self._refusal.text not in error.text or "\n" in error.text:
            self.problems.append(f"{outcome.what} was refused without the cause: {error!r}")

    def _see_it_tried_again(self) -> None:
        """Until the daemon has met the fault twice more, if it meets it at all."""
        with self._news:
            wanted = self._injected + 2
            self._news.wait_for(lambda: self._injected >= wanted, timeout=0.5)

    def _look_at_status(self, client: Client, outcomes: list[RequestOutcome]) -> None:
        if self._refusal.call == ANY_DESCRIPTOR:
            # No new connection is accepted; the daemon may get a descriptor back, and go on.
            status = self._ask("status", client.info)
            if status.error is not None:
                self.problems.append(f"status: {status.error!r}")
            return
        done = self._daemon.run("status", "-o", "json", check=False)
        if done.returncode not in {0, _READ_ONLY_CODE}:
            self.problems.append(f"status ends with {done.returncode}: {done.stderr.strip()}")
            return
        is_read_only = json.loads(done.stdout)["is_read_only"]
        if is_read_only != (done.returncode == _READ_ONLY_CODE):
            self.problems.append(f"status ends with {done.returncode}, and says {is_read_only=}")
        is_refused = any(isinstance(one.error, errors.ReadOnlyError) for one in outcomes)
        if is_refused and not is_read_only:
            self.problems.append("status does not say that the daemon is read-only")

    def _compare_views(self, client: Client) -> None:
        """What was shown of a job alone is not taken back by a listing."""
        if self._refusal.call == ANY_DESCRIPTOR:
            return
        shown = [
            self._ask("read", functools.partial(client.job, job_id, timeout=REQUEST_SECONDS))
            for job_id, _ in self._acknowledged
        ]
        listed = {row.id: row.status for row in client.jobs(timeout=REQUEST_SECONDS)}
        for outcome in shown:
            if outcome.error is not None:
                continue
            job = outcome.answer
            # An archived job is in no listing.
            status = listed.get(job.id, job.status)
            if job.status.is_final and status is not job.status:
                self.problems.append(f"job {job.id} was shown as {job.status}, then {status}")

    # ------------------------------------------------------------ after

    def _is_well(self, client: Client) -> bool:
        """Whether the daemon lives, and accepts a job again before long."""
        job = self._stage.job()
        deadline = time.monotonic() + RECOVERY_SECONDS
        problem = f"no submission is accepted in {RECOVERY_SECONDS:g} s"
        while time.monotonic() < deadline:
            if not self._daemon.is_up:
                problem = "the daemon died"
                break
            outcome = self._ask("submit", lambda: client.submit(job, timeout=RECOVERY_SECONDS))
            if outcome.error is None:
                self._acknowledged.append((outcome.answer, job))
                return True
            if not isinstance(outcome.error, errors.ReadOnlyError | errors.OutcomeUnknownError):
                problem = f"afterwards, submit was refused with {outcome.error!r}"
                break
        self.problems.append(problem)
        return False

    def _wait_for_all(self, client: Client) -> None:
        ids = [job_id for job_id, _ in self._acknowledged if job_id != self._old]
        try:
            client.wait(*ids, timeout=WAIT_SECONDS, fields=("id",))
        except GangerError as error:
            self.problems.append(f"afterwards: {error!r}")

    def _judge(self, client: Client) -> None:
        for job_id, job in self._acknowledged:
            runs = self._stage.runs(job)
            wanted = JobStatus.SUCCESS
            if job_id == self._victim and self._is_canceled:
                wanted = JobStatus.CANCELED
            try:
                found = client.job(job_id)
            except GangerError as error:
                self.lost += 1
                self.problems.append(f"job {job_id}: {error!r}")
                continue
            if found.status is not wanted:
                result = found.ops[0].result if found.ops else None
                self.problems.append(f"job {job_id} ended in {found.status}: {result}")
            self.doubled += runs > 1
            self.lost += runs < (wanted is JobStatus.SUCCESS)
            if runs and wanted is JobStatus.CANCELED:
                self.problems.append(f"job {job_id} ran although it was canceled")
        for job in self._refused:
            if self._stage.runs(job):
                self.problems.append("a job ran that had been refused")
        self.doubled += sum(self._stage.runs(job) > 1 for job in self._doubtful)
        info = client.info()
        if info.is_read_only:
            self.problems.append("the daemon is still read-only")
        if info.quarantined:
            self.problems.append(f"quarantined: {info.quarantined}")
        if rows := client.locks():
            self.problems.append(f"locks are left: {rows}")

    def _failures(self) -> list[str]:
        """The errors with which components failed, with the end of their tracebacks."""
        lines = self._daemon.places.log.read_text(encoding="utf-8", errors="replace").splitlines()
        events = [json.loads(line) for line in lines if '"component failed"' in line]
        return [f"{one.get('component')}: {one.get('traceback', '')[-600:]}" for one in events]

    def _restarts(self, client: Client) -> dict[str, int]:
        return {part.name: part.restarts for part in client.info().components if part.restarts}
