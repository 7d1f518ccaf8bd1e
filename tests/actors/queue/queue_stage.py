"""A job queue on a stage, with the executor's and the job processes' side of the talk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.actors.runtime.stage import Asker, Stage, Staged

from ganger.actors.queue.job_queue import JobQueue
from ganger.storage.alive import lock_files
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.queue_files import spool
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import JobSpec, SubmitJobs

SUCCESS = JobStatus.SUCCESS

DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5}
PID = 815
ENDED = 1_700_000_000.0


class Queue:
    """A job queue on the stage, and the executor's and the job processes' side of the talk."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = stage
        self.flushed: dict[Path, bytes] = {}
        monkeypatch.setattr("ganger.storage.log.cut.flush_file_system", self.flush_file_system)
        self.actor: Staged[JobQueue] = stage.start(JobQueue)
        self.processes: dict[int, lock_files.LockFile] = {}
        self.channels: dict[int, Asker] = {}

    def restart(self, incarnation: int = 1) -> None:
        """Start a successor as after a crash: the queue writes nothing before it ends."""
        ledger = self.actor.component.store.ledger
        ledger._journal.close()
        ledger.directory.close()
        self.actor = self.stage.start(JobQueue, incarnation)

    def flush_file_system(self, *_: object) -> None:
        """From now on, every file is as it is also after the loss of the machine."""
        self.flushed = {path: path.read_bytes() for path in self.files()}

    def file_of(self, name: str) -> str:
        return (self.stage.places.queue / name).read_text(encoding="ascii")

    def files(self) -> list[Path]:
        """The files of jobs; inputs beside them are flushed when they are written."""
        found = self.stage.places.queue.rglob("job-*")
        return [path for path in found if path.is_file() and path.parent.name != spool.FOLDER]

    def crash_machine(self) -> None:
        """As `restart`; what was not flushed is lost: files that are newer are torn, or gone."""
        self.kill_all()
        for path in self.files():
            path.write_bytes(b"")
        for path, data in self.flushed.items():
            path.write_bytes(data)
        self.restart()

    def kill_all(self) -> None:
        for held in self.processes.values():
            held.remove()
        self.processes.clear()

    # What others say.

    def submit(self, *specs: JobSpec, **fields: Any) -> Asker:
        return self.actor.ask(SubmitJobs(jobs=list(specs) or [spec()], **fields))

    def submitted(self, *specs: JobSpec, **fields: Any) -> list[int]:
        return self.submit(*specs, **fields).answer_as(messages.JobsSubmitted).ids

    def choose(self, *ids: int, **fields: Any) -> None:
        fields.setdefault("report", self.actor.component.store.announcements.report)
        self.actor.turn(messages.JobsChosen(start=list(ids), **fields))

    def rest(self) -> None:
        """Nothing comes for so long that every file is written, unless the disk refuses."""
        while self.actor.component.runtime.patience_seconds is not None:
            self.actor.be_quiet()
            self.let_threads_work()

    def let_threads_work(self) -> None:
        """The compactor is through, and says so."""
        for work in self.stage.beside:
            work.run()
        if said := self.stage.take(messages.Compacted):
            self.actor.turn(*said)

    def greet(self, job_id: int) -> str:
        """A child for the job holds its lock file and asks to go on; the turn goes on."""
        held = lock_files.create(self.stage.places.lock_files, f"job_{job_id:06d}_1")
        self.processes[job_id] = held
        self.channels[job_id] = Asker()
        self.ask_hand_over(job_id, held.path)
        return held.path

    def ask_hand_over(self, job_id: int, lock_file: str) -> None:
        asked = messages.HandOverRequested(job_id=job_id, lock_file=lock_file, process_id=PID)
        self.actor.handle(Envelope(asked, self.channels[job_id]))

    def start(self, job_id: int) -> str:
        """Through to the running process; its lock file."""
        self.choose(job_id)
        lock_file = self.hand_over(job_id)
        self.channels[job_id].answer_as(messages.JobGo)
        self.stage.sent.clear()
        return lock_file

    def hand_over(self, job_id: int) -> str:
        """As `greet`; the turn ends."""
        lock_file = self.greet(job_id)
        self.actor.end_turn()
        return lock_file

    def start_new(self) -> str:
        """Submit a job and start it; its lock file."""
        [job_id] = self.submitted(spec())
        return self.start(job_id)

    def run_new(self) -> None:
        """Submit a job and start its opcode."""
        [job_id] = self.submitted(spec())
        self.start_running(job_id)

    def finish_new(self, status: JobStatus = SUCCESS) -> None:
        """Submit a job and run it to its end."""
        [job_id] = self.submitted(spec())
        self.finish(job_id, status)

    def start_running(self, job_id: int) -> None:
        """Through to the first opcode: that it runs is durable."""
        self.start(job_id)
        self.recorded(job_id, 10, JobStatus.RUNNING)

    def record(self, job_id: int, serial: int, *statuses: JobStatus, **fields: Any) -> Asker:
        """The process records its state; the turn goes on."""
        body = self.body_of_process(job_id, serial, *statuses)
        return self.actor.say(self.state(job_id, serial, *statuses, body=body, **fields))

    def recorded(self, job_id: int, serial: int, *statuses: JobStatus, **fields: Any) -> Asker:
        """As `record`; the turn ends."""
        asker = self.record(job_id, serial, *statuses, **fields)
        self.actor.end_turn()
        return asker

    def state(
        self, job_id: int, serial: int, *statuses: JobStatus, body: bytes | None, **fields: Any
    ) -> messages.RecordState:
        status = jobs.job_status(list(statuses))
        fields.setdefault("ended", ENDED if status.is_final else None)
        return messages.RecordState(
            job_id=job_id,
            serial=serial,
            status=status,
            priority=0,
            log_serial=fields.pop("log_serial", 0),
            body=body,
            **fields,
        )

    def body_of_process(self, job_id: int, serial: int, *statuses: JobStatus) -> bytes:
        job = self.job(job_id)
        for op, status in zip(job.ops, statuses, strict=True):
            op.status = status
        job.extra[jobs.STATE_SERIAL_KEY] = serial
        if job.status.is_final:
            job.end_timestamp = jobs.timestamp(ENDED)
        return jobs.encode_job(job)

    def end_process(self, job_id: int, *, has_left: bool, was_killed: bool = False) -> None:
        """The process is gone, and the executor says so; the turn goes on."""
        held = self.processes.pop(job_id)
        held.remove()
        exited = messages.JobExited(
            job_id=job_id, lock_file=held.path, has_left=has_left, was_killed=was_killed
        )
        self.actor.notify(exited)

    def lose_process(
        self, job_id: int, *, has_left: bool = False, was_killed: bool = False
    ) -> None:
        """As `end_process`; the turn ends."""
        self.end_process(job_id, has_left=has_left, was_killed=was_killed)
        self.actor.end_turn()

    def retry_disk(self) -> None:
        """The pause after a refused write is over."""
        self.actor.turn(messages.DiskRetried())

    def finish(self, job_id: int, status: JobStatus = SUCCESS) -> None:
        """Run a job to its end."""
        self.start(job_id)
        self.recorded(job_id, 10, status)
        self.write_as_process(job_id, self.body_of_process(job_id, 10, status))
        self.lose_process(job_id, has_left=True)
        self.stage.sent.clear()

    def write_as_process(self, job_id: int, body: bytes) -> None:
        (self.stage.places.queue / f"job-{job_id}").write_bytes(body)

    # What is to be seen.

    def job(self, job_id: int) -> jobs.Job:
        document = self.actor.say(messages.ReadJob(id=job_id)).answer_as(messages.JobDocument)
        return jobs.decode_job(document.body)

    def statuses(self, *, archived: bool = False) -> dict[int, str]:
        return {row.id: str(row.status) for row in listed(self.actor, archived=archived)}

    def file(self, job_id: int) -> Any:
        data = (self.stage.places.queue / f"job-{job_id}").read_bytes()
        return msgspec.json.decode(data)


def listed(queue: Staged[JobQueue], *, archived: bool = False) -> list[messages.JobSummary]:
    """All jobs, perhaps archived ones too: a page ends with the queue's turn, which may be soon."""
    rows: list[messages.JobSummary] = []
    after: int | None = 0
    while after is not None:
        asked = queue.say(messages.ListJobs(archived=archived, after=after))
        page = asked.answer_as(messages.JobRows)
        rows += page.rows
        after = page.next_after
    return rows


def spec(*depends: tuple[int, list[str]], ops: int = 1, **fields: Any) -> JobSpec:
    return JobSpec(ops=[DELAY] * ops, depends=list(depends), **fields)
