"""A queue directory as a daemon may have left it, and what its successor finds there."""

from __future__ import annotations

from pathlib import Path

from ganger.actors.store import recovery
from ganger.actors.store.loaded import Loaded
from ganger.storage.alive import lock_files
from ganger.storage.disk import paths
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import Record
from ganger.storage.queue_files import job_files
from ganger.storage.queue_files.job_files import QueueDirectory


class Leftovers:
    """A queue directory in the making, and what is found in it."""

    def __init__(self, root: Path) -> None:
        self.places = paths.Places(root, root / "run")
        self.places.queue.mkdir(parents=True)
        self.places.lock_files.mkdir(parents=True)
        self.directory = QueueDirectory(self.places)
        self.directory.prepare()
        self.own = lock_files.create(self.places.lock_files, "daemon")
        self.living = lock_files.create(self.places.lock_files, "job_000001_1")
        self.dead = f"{self.places.lock_files}/job_000001_0"

    def body(
        self, job_id: int, serial: int, *statuses: JobStatus, livelock: str | None = None
    ) -> bytes:
        ops = [
            jobs.OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY"}, status=status) for status in statuses
        ]
        extra = {jobs.STATE_SERIAL_KEY: serial}
        return jobs.encode_job(jobs.Job(id=job_id, ops=ops, livelock=livelock, extra=extra))

    def write(self, job_id: int, body: bytes) -> None:
        self.directory.write(job_id, body, flush=False)

    def archived(self, job_id: int) -> Path:
        """Where the archived job's file belongs; its folder is there."""
        folder = Path(job_files.archive_folder(self.places.archive, job_id))
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"job-{job_id}"

    def journal(self, *records: Record) -> None:
        kept = Journal(self.places.journal)
        for record in records:
            kept.append(record)
        kept.write(0)
        kept.close()

    def load(self) -> Loaded:
        kept = Journal(self.places.journal)
        return recovery.load(QueueDirectory(self.places), kept, self.own.path)

    def close(self) -> None:
        self.own.remove()
        self.living.remove()
