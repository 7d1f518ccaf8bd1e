"""Writes a data directory of the format of this version: run it when the format is changed.

    .venv/bin/python -m tests.compatibility.make_format_data

The real queue, lock manager and configuration store write it, on the stage of their tests: a job
in every status, some whose newest state the journal alone has, an archive, locks, filter rules.
It ends as a killed machine leaves it. Beside it, ``expected.json`` says what a daemon must find.
Directories of earlier formats are never written again: they are what was released.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.actors.queue.queue_stage import DELAY, Queue, spec
from tests.actors.runtime.stage import Stage

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.locks.lock_manager import LockManager
from ganger.storage import config_files, settings
from ganger.storage.filters import rules
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.storage.log import records
from ganger.storage.queue_files import inodes, job_files
from ganger.storage.version import version
from ganger.transport import messages

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus
DATA = Path(__file__).parent / "data"
EXEC: dict[str, Any] = {
    "OP_ID": "OP_EXEC",
    "argv": ["sh", "-c", "echo größer"],
    "locks": {"node": {"exclusive": ["n1"]}},
    "comment": "as submitted",
}
RESERVE_BYTES = 4_096
"""Zeros ahead of the journal's records; the usual number would only make the file larger."""


def name() -> str:
    """What the directory is called: by the versions of the queue and of the journal."""
    return f"ganger-{job_files.VERSION}.{records.FORMAT_VERSION}"


def main() -> None:
    """Write the directory of the present format anew."""
    with stage_elsewhere() as stage, pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "JOURNAL_RESERVE_BYTES", RESERVE_BYTES)
        write_configuration(stage)
        write_jobs(Queue(stage, patch))
        write_locks(stage)
        target = DATA / name()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(
            stage.places.data,
            target,
            ignore=shutil.ignore_patterns(f"{inodes.PREFIX}*", "lock"),
        )
        (target / "expected.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(EXPECTED), indent=1) + b"\n"
        )


EXPECTED: dict[str, Any] = {
    "written_by": version(),
    "queue": job_files.VERSION,
    "journal": records.FORMAT_VERSION,
    "last_id": 16,
    # The status of each job as a daemon finds it: what had begun died with the machine.
    "jobs": {
        "3": "success",
        "4": "error",
        "5": "canceled",
        "6": "error",
        "7": "error",
        "8": "error",
        "9": "queued",
        "10": "waiting",
        "11": "queued",
        "12": "error",
        "13": "success",
        "14": "queued",
        "15": "queued",
        "16": "queued",
    },
    "died": [6, 7, 8, 12],
    "archived": [1, 2],
    "rules": ["ACCEPT", "PAUSE", "REJECT", "CONTINUE", "RATE_LIMIT"],
    "running_jobs_max": 7,
    "findings": ["journal-ahead", "not-archived", "process-gone", "serial"],
}


@contextlib.contextmanager
def stage_elsewhere() -> Iterator[Stage]:
    """A stage in a temporary folder, with paths that name no place of this machine."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        stage = Stage(Path())
        try:
            yield stage
        finally:
            stage.close_log()
            stage.daemon_lock.remove()
            os.chdir(before)


def write_configuration(stage: Stage) -> None:
    """The first configuration, with a rule of each action."""
    stage.start(ConfigStore).close()
    configuration = config_files.read(stage.places.config)
    assert configuration is not None
    configuration["cluster"]["max_running_jobs"] = EXPECTED["running_jobs_max"]
    for number, action in enumerate(EXPECTED["rules"]):
        raw = {
            "uuid": f"00000000-0000-4000-8000-{number:012d}",
            "watermark": number,
            "priority": number,
            "predicates": [["jobid", [">", "id", "watermark"]], ["reason", ["=~", "reason", "x"]]],
            "action": ["RATE_LIMIT", 2] if action == "RATE_LIMIT" else action,
            "reason_trail": [["gnt:user", "by hand", 1_795_226_694_287_745_024]],
            "valid_until": 4_000_000_000.0,
        }
        configuration["filters"][raw["uuid"]] = rules.to_raw(rules.parse_rule(raw))
    config_files.write(stage.places.config, configuration)


def write_jobs(queue: Queue) -> None:
    """Jobs 1 to 16, and the end of the machine."""
    assert queue.submitted(*[spec()] * 4) == [1, 2, 3, 4]
    for job_id, status in ((1, SUCCESS), (2, ERROR), (3, SUCCESS), (4, ERROR)):
        queue.finish(job_id, status)
    queue.actor.ask(messages.ArchiveJob(id=1))
    assert queue.submitted(spec(reason=[("gnt:user", "no longer", 1)])) == [5]
    queue.rest()
    queue.actor.ask(messages.CancelJob(id=5))
    assert queue.submitted(*[spec()] * 3) == [6, 7, 8]
    for job_id, status in ((6, RUNNING), (7, WAITING), (8, CANCELING)):
        run(queue, job_id, status)
    # A successor begins a segment of its own, which repeats the states of the living.
    queue.restart()
    assert queue.submitted(
        messages.JobSpec(ops=[EXEC, DELAY], priority=-3, reason=[("gnt:user", "why", 7)]),
        key="once",
    ) == [9]
    assert queue.submitted(spec((9, ["success", "error"]))) == [10]
    assert queue.submitted(spec(), spec(ops=2), spec()) == [11, 12, 13]
    queue.rest()
    queue.choose(11)
    run(queue, 12, SUCCESS, QUEUED)
    # The end of job 13 is in the journal, and its process had no time to write its file.
    queue.start(13)
    queue.record(13, 10, SUCCESS)
    queue.actor.end_turn()
    # Acknowledged, and no file was written yet.
    assert queue.submitted(spec(), spec(), spec()) == [14, 15, 16]
    queue.actor.ask(messages.ArchiveJob(id=2))
    queue.actor.component.store.ledger._journal._close()
    # Its new name was not flushed.
    archived = queue.stage.places.archive / "0" / "job-2"
    archived.rename(queue.stage.places.queue / archived.name)
    queue.kill_all()


def run(queue: Queue, job_id: int, *statuses: JobStatus) -> None:
    """Bring a job with its process so far."""
    queue.start(job_id)
    queue.record(job_id, 10, *statuses)
    queue.actor.end_turn()
    queue.write_as_process(job_id, queue.body_of_process(job_id, 10, *statuses))


def write_locks(stage: Stage) -> None:
    """Job 6 holds locks, job 7 waits for one of them."""
    manager = stage.start(LockManager)
    holder, waiter = (Owner(job_id, stage.daemon_lock.path, job_id) for job_id in (6, 7))
    for owner, changes in (
        (holder, [("node/n1", "exclusive"), ("node/n2", "shared")]),
        (waiter, [("node/n2", "exclusive")]),
    ):
        manager.ask(messages.RequestLocks(owner=owner, priority=0, changes=changes))


if __name__ == "__main__":
    main()
