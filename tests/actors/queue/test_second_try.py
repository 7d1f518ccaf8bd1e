"""Each change of the disk is refused once, then the disk works: the queue ends up as without that.

A short story of a queue is played once for each change that it makes on disk. Clients and
processes repeat what was refused, as they do by themselves.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Stage, Staged
from tests.refusals import OneRefusal

from ganger.actors.store.job_rows import Phase
from ganger.storage import errors
from ganger.storage.jobs import jobs, origins
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.messages import JobSpec, Message

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus

INPUT = "x" * 20_000
"""Standard input that lies beside the job."""

TRIES = 3

PRIORITIES = 1_000
"""The scheduler has seen all priorities."""


class Story:
    """What clients, the scheduler, the executor and two processes do."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.ids: list[int] = []
        self.asked_for: set[int] = set()
        """The jobs for which the executor was asked for a process."""

    def play(self) -> None:
        one, two, three, four = self.submit(spec(), spec(), key="all"), 0, 0, 0
        two = one + 1
        three = self.submit(JobSpec(ops=[{"OP_ID": "OP_EXEC", "argv": ["true"], "stdin": INPUT}]))
        four = self.submit(spec(ops=2))
        self.queue.rest()
        self.insist(messages.ChangeJobPriority(id=three, priority=4))
        self.start(one)
        self.record(one, 10, RUNNING)
        self.record(one, 20, ERROR)
        self.end(one, has_left=True)
        self.insist(messages.CancelJob(id=two))
        self.ids += self.insist(messages.RetryJob(id=one, key="again")).ids
        self.start(four)
        self.give_back(four)
        self.start(four)
        self.record(four, 30, RUNNING, QUEUED)
        self.end(four, has_left=False)
        self.insist(messages.ArchiveJob(id=one))
        self.insist(messages.SetDrain(is_drained=True))
        self.insist(messages.SetDrain(is_drained=False))
        # A journal that begins anew does not cover the job, whose file is as new.
        self.queue.retry_disk()
        self.settle()
        self.start(three)
        self.record(three, 10, SUCCESS)
        self.end(three, has_left=True)
        # The files of ended jobs are as new as the journal, before the archive takes them.
        self.assert_nothing_waits()
        self.insist(messages.AutoArchiveJobs(age_seconds=-1))
        self.settle()

    # What each says, until it is heard.

    def submit(self, *specs: JobSpec, key: str | None = None) -> int:
        ids = self.insist(messages.SubmitJobs(jobs=list(specs), key=key)).ids
        self.ids += ids
        return int(ids[0])

    def insist(self, message: Message) -> Any:
        """Ask until it is not refused; a reply comes each time."""
        for _ in range(TRIES):
            asker = self.queue.actor.ask(message)
            self.settle()
            if not isinstance(asker.answer, messages.Failure):
                return asker.answer
            error = errors.from_wire(*asker.refusal)
            assert isinstance(error, errors.StorageError | errors.TryAgainError), error
        raise AssertionError(f"refused again and again: {asker.answer}")

    def settle(self) -> None:
        """Everything that has time is done, and every alarm rings, the queue's retry among them."""
        for _ in range(TRIES):
            self.queue.rest()
            self.queue.stage.run_timers()
            own = (messages.DiskRetried, messages.Compacted, messages.JobExited)
            said = [one for name, one in self.queue.stage.sent if name == "job_queue"]
            for asked in self.queue.stage.take(messages.StartJobs):
                self.asked_for |= {job_id for job_id, _ in asked.jobs}
            self.queue.stage.sent.clear()
            self.queue.actor.turn(*(one for one in said if isinstance(one, own)))
        assert self.queue.stage.timers == []

    def phase(self, job_id: int) -> Phase:
        row = self.queue.actor.component.store.table.find(job_id)
        assert row is not None
        return row.phase

    def start(self, job_id: int) -> None:
        for _ in range(TRIES):
            if self.phase(job_id) is Phase.PENDING:
                self.queue.choose(job_id, priorities=PRIORITIES)
                self.settle()
            if self.phase(job_id) is Phase.STARTING:
                self.asked_for.remove(job_id)
                self.queue.hand_over(job_id)
                self.settle()
            if self.phase(job_id) is Phase.HANDED_OVER:
                assert isinstance(self.queue.channels[job_id].answer, messages.JobGo)
                return
            if held := self.queue.processes.pop(job_id, None):
                assert self.queue.channels[job_id].answers == []
                held.remove()
        raise AssertionError(f"{job_id} does not start")

    def record(self, job_id: int, serial: int, *statuses: JobStatus) -> None:
        body = self.queue.body_of_process(job_id, serial, *statuses)
        self.insist(self.queue.state(job_id, serial, *statuses, body=body))
        # The process writes its file when the state is stored.
        self.queue.write_as_process(job_id, body)

    def give_back(self, job_id: int) -> None:
        job = self.queue.job(job_id)
        job.livelock = None
        job.extra[jobs.STATE_SERIAL_KEY] = 20
        body = jobs.encode_job(job)
        self.queue.write_as_process(job_id, body)
        self.queue.actor.ask(messages.JobReturns(job_id=job_id, serial=20, body=body))
        self.end(job_id, has_left=True)

    def end(self, job_id: int, *, has_left: bool) -> None:
        self.queue.lose_process(job_id, has_left=has_left)
        self.settle()

    # What is to be seen.

    def look(self) -> list[tuple[Any, ...]]:
        """Each job, in the order of the submissions: refused ones cost ids.

        Without the note in a job that names its repetition: a refused write may lose that.
        """
        seen: list[tuple[Any, ...]] = []
        for job_id in self.ids:
            job = self.queue.job(job_id)
            row = self.queue.actor.component.store.table.find(job_id)
            directory = self.queue.actor.component.store.ledger.directory
            name = job.ops[0].input.get("stdin_file")
            kept = directory.input_of(job_id, name)
            seen.append(
                (
                    row is None,
                    [(op.status, op.priority, op.result is None) for op in job.ops],
                    None if kept is None else Path(kept.path).stat().st_size,
                    job.livelock is not None and job.livelock.endswith(f"/job_{job_id:06d}_1"),
                    origins.RETRY_OF_KEY in job.extra,
                )
            )
        return seen

    def assert_nothing_waits(self) -> None:
        queue = self.queue.actor.component
        store, ledger = queue.store, queue.store.ledger
        waiting = {
            "read-only": ledger.is_read_only,
            "effects": ledger._effects,
            "staged": ledger._staged,
            "states": ledger.files._states,
            "unwritten": ledger.files._unwritten,
            "unarchived": ledger.segments._unarchived,
            "refused inputs": ledger.segments._refused_inputs,
            "in doubt": ledger.files._in_doubt or ledger.segments.is_doubtful,
            "lent": ledger.files._lent or ledger.files._owned,
            "unsettled": store._unsettled,
            "retry": store._is_retry_due or store._failed_retries,
            "keys": queue.admission._keys._in_flight,
            "starting": queue.hand_over._starting,
            "refused": queue.lifecycle._refused,
            "requests": queue.control._requests or queue.control._archivals,
            "links": queue.control._retries,
        }
        assert {name: found for name, found in waiting.items() if found} == {}


@contextlib.contextmanager
def told(root: Path, place: int) -> Iterator[tuple[Story, OneRefusal]]:
    """The story with one refused change; played to its end."""
    with pytest.MonkeyPatch.context() as patch:
        stage = Stage(root)
        queue = Queue(stage, patch)
        refusal = OneRefusal(patch, place)
        handle = Staged.handle

        def watched(staged: Staged[Any], message: object) -> None:
            with refusal.watching():
                handle(staged, message)

        patch.setattr(Staged, "handle", watched)
        story = Story(queue)
        story.play()
        yield story, refusal
        queue.kill_all()
        queue.actor.close()
        stage.daemon_lock.remove()


@pytest.mark.slow
def test_a_change_that_the_disk_refuses_once_is_made_later(tmp_path: Path) -> None:
    with told(tmp_path / "0", 0) as (story, _):
        expected = story.look()
        story.assert_nothing_waits()
    for place in itertools.count(1):
        with told(tmp_path / str(place), place) as (story, refusal):
            if not refusal.has_come:
                break
            what = f"change {place}: {refusal.made[place - 1]}"
            assert (story.look(), refusal.unflushed) == (expected, None), what
            story.assert_nothing_waits()
            story.queue.crash_machine()
            assert story.look() == expected, what
    assert place > 100
