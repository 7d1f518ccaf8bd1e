"""The healthy directory that the mutated ones are copies of, and what is known of its jobs.

It is made once through the real queue: pending, ended and archived jobs, with dependencies, keys,
logs and results. Everything is in its job files; the journal repeats all of it.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.actors.queue.queue_stage import Queue, listed
from tests.actors.runtime.stage import Stage, Staged

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.locks.lock_manager import LockManager
from ganger.actors.queue.job_queue import JobQueue
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import JobsStored, StateStored
from ganger.transport import messages
from ganger.transport.messages import JobSpec

if TYPE_CHECKING:
    from pathlib import Path

JOBS = 12
ARCHIVED = (1, 2, 3)
ENDED = {
    1: JobStatus.SUCCESS,
    2: JobStatus.ERROR,
    4: JobStatus.SUCCESS,
    6: JobStatus.ERROR,
    7: JobStatus.SUCCESS,
}
CANCELED = (3, 5, 8)
DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001}


class KnownJob(msgspec.Struct, frozen=True):
    """A job as it was before anything was damaged."""

    body: bytes
    row: messages.JobSummary
    earlier: frozenset[bytes] = frozenset()
    """Its states that the journal holds, up to the last."""


def make_healthy(root: Path) -> dict[int, KnownJob]:
    """Make a directory with a journal in ``root``, and one without in ``root``-cut."""
    with pytest.MonkeyPatch.context() as patch:
        stage = Stage(root)
        for component in (ConfigStore, LockManager):
            stage.start(component).close()
        queue = Queue(stage, patch)
        for number in range(JOBS):
            depends = [(number, ["success"])] if number % 3 == 2 else []
            spec = JobSpec(ops=[dict(DELAY)] * (1 + number % 2), depends=depends)
            queue.submitted(spec, key=f"key-{number}")
        for job_id, status in ENDED.items():
            _run(queue, job_id, status)
        for job_id in CANCELED:
            queue.actor.ask(messages.CancelJob(id=job_id))
        for job_id in ARCHIVED:
            queue.actor.ask(messages.ArchiveJob(id=job_id))
        queue.actor.close()
        stage.daemon_lock.remove()
        # By a queue that has read it all from the disk, as those of the cases will: of a copy,
        # because it begins a new journal.
        read = root.with_name(f"{root.name}-read")
        shutil.copytree(root, read)
        stage = Stage(read)
        known = _known(stage.start(JobQueue), Journal(root / "data" / "queue" / "journal"))
        stage.daemon_lock.remove()
    assert len(known) == JOBS
    cut = root.with_name(f"{root.name}-cut")
    shutil.copytree(root, cut)
    for segment in (cut / "data" / "queue" / "journal").iterdir():
        segment.unlink()
    return known


def _run(queue: Queue, job_id: int, status: JobStatus) -> None:
    """Run a job to its end, with a log and a result, as its process would."""
    queue.start(job_id)
    job = queue.job(job_id)
    for place, op in enumerate(job.ops):
        stamp = (1_700_000_000 + job_id, place)
        op.status = status
        op.result = {"job": job_id, "text": "ende \u00fc", "place": place}
        op.log = [(2 * place + serial, stamp, "message", f"line {serial}") for serial in (1, 2)]
        op.start_timestamp = op.exec_timestamp = op.end_timestamp = stamp
    job.end_timestamp = (1_700_000_100 + job_id, 0)
    job.extra[jobs.STATE_SERIAL_KEY] = 10
    body = jobs.encode_job(job)
    statuses = [status] * len(job.ops)
    ended = jobs.seconds(job.end_timestamp)
    queue.actor.ask(queue.state(job_id, 10, *statuses, body=body, ended=ended, log_serial=4))
    queue.write_as_process(job_id, body)
    queue.end_process(job_id, has_left=True)
    queue.actor.end_turn()
    queue.stage.sent.clear()


def _known(queue: Staged[JobQueue], kept: Journal) -> dict[int, KnownJob]:
    known = {}
    states = _states(kept)
    for row in listed(queue, archived=True):
        asked = queue.ask(messages.ReadJob(id=row.id))
        known[row.id] = KnownJob(asked.answer_as(messages.JobDocument).body, row, states[row.id])
    queue.close()
    return known


def _states(kept: Journal) -> dict[int, frozenset[bytes]]:
    found: dict[int, frozenset[bytes]] = {}
    for record in kept.replay():
        match record:
            case JobsStored():
                states = [(job_id, body) for job_id, _, body in record.jobs]
            case StateStored():
                states = [(record.job_id, record.body)]
            case _:
                states = []
        for job_id, body in states:
            found[job_id] = found.get(job_id, frozenset()) | {body}
    return found
