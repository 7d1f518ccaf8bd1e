"""A ledger in a directory, for its tests."""

from __future__ import annotations

from pathlib import Path

from ganger.actors.durable.ledger import Ledger
from ganger.actors.store import recovery
from ganger.actors.store.loaded import Loaded
from ganger.storage import errors
from ganger.storage.disk import paths
from ganger.storage.log.journal import Journal
from ganger.storage.queue_files.job_files import QueueDirectory


def body(job_id: int, serial: int, status: str = "queued") -> bytes:
    text = '{"id": %d, "ops": [{"input": {}, "status": "%s"}], "ganger_serial": %d}'
    return (text % (job_id, status, serial)).encode()


class Books:
    """A ledger in a directory, what was said about each of its entries, and a flaky disk."""

    def __init__(self, root: Path) -> None:
        self.places = paths.Places(root, root / "run")
        self.places.queue.mkdir(exist_ok=True)
        self.directory = QueueDirectory(self.places)
        self.directory.prepare()
        self.journal = Journal(self.places.journal)
        self.ledger = Ledger(self.directory, self.journal)
        self.said: list[str] = []

    def begin(self) -> Books:
        self.ledger.begin(Loaded())
        return self

    def done(self, name: str) -> None:
        self.said.append(name)

    def failed(self, name: str, error: errors.GangerError) -> None:
        self.said.append(f"{name}: {error.name}")

    def store_new(self, *ids: int) -> None:
        name = f"new {ids[0]}"
        self.ledger.last_id = max(ids)
        self.ledger.store_new(
            [(job_id, 1, body(job_id, 1)) for job_id in ids],
            lambda: self.done(name),
            lambda error: self.failed(name, error),
        )

    def store_state(self, job_id: int, serial: int, status: str = "queued") -> None:
        name = f"state {job_id}.{serial}"
        self.ledger.store_state(
            (job_id, serial, body(job_id, serial, status)),
            lambda: self.done(name),
            lambda error: self.failed(name, error),
        )

    def store_lazily(self, job_id: int, serial: int) -> None:
        name = f"end {job_id}.{serial}"
        self.ledger.store_lazily(
            (job_id, serial, body(job_id, serial, "success")),
            lambda: self.done(name),
            lambda error: self.failed(name, error),
        )

    def store_archived(self, job_id: int) -> None:
        name = f"archived {job_id}"
        self.ledger.store_archived(
            job_id, lambda: self.done(name), lambda error: self.failed(name, error)
        )

    def commit_new(self, *ids: int) -> None:
        self.store_new(*ids)
        self.ledger.commit()

    def commit_state(self, job_id: int, serial: int, status: str = "queued") -> None:
        self.store_state(job_id, serial, status)
        self.ledger.commit()

    def commit_archived(self, job_id: int) -> None:
        self.store_archived(job_id)
        self.ledger.commit()

    def take_effects(self) -> list[str]:
        said, self.said = self.said, []
        return said

    def after_crash(self, *, lost: tuple[int, ...] = ()) -> dict[int, bytes | None]:
        """What a successor knows if the daemon dies now; ``lost`` files go with the machine."""
        for job_id in lost:
            (self.places.queue / f"job-{job_id}").write_bytes(b"")
        directory = QueueDirectory(self.places)
        loaded = recovery.load(directory, Journal(self.places.journal), "none")
        assert loaded.quarantined == []
        found = {**loaded.living, **loaded.unwritten}
        return {
            row.id: found[row.id][1] if row.id in found else directory.read(row.id)
            for row in loaded.table
        }

    def is_read_only(self) -> bool:
        return self.ledger.is_read_only

    def close(self) -> None:
        self.ledger.close()
