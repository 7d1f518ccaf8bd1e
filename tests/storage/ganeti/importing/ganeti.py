"""State directories as Ganeti leaves them, for tests of what takes them over."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

DATA = Path(__file__).parents[3] / "compatibility" / "data"


def state_directory(folder: Path, *states: str) -> Path:
    """A copy of a recorded one, with these files of ``job-states`` in the queue."""
    path = folder / "ganeti"
    shutil.copytree(DATA / "queue", path / "queue")
    shutil.copy(DATA / "config.data", path)
    for name in states:
        shutil.copy(DATA / "job-states" / name, path / "queue" / name.partition(".")[0])
    return path


def opcode(**given: Any) -> dict[str, Any]:
    """An entry of a job file for a delay, as LuxiD writes it when it is submitted."""
    fields = {"duration": 0.01, "reason": [], **given.pop("input", {})}
    return {
        "input": {"OP_ID": "OP_TEST_DELAY", **fields},
        "status": "queued",
        "result": None,
        "log": [],
        "priority": 0,
        **given,
    }


def job(job_id: int, *ops: dict[str, Any], **given: Any) -> bytes:
    """A job file; of one delay unless it says otherwise."""
    return msgspec.json.encode({"id": job_id, "ops": list(ops or [opcode()]), **given})


def add_job(path: Path, job_id: int, *ops: dict[str, Any], **given: Any) -> Path:
    """Put a job into the queue of a state directory, and count it; its file."""
    place = path / "queue" / f"job-{job_id}"
    place.write_bytes(job(job_id, *ops, **given))
    serial = path / "queue" / "serial"
    serial.write_text(f"{max(job_id, int(serial.read_text()))}\n")
    return place


def archive(path: Path, job_id: int, content: bytes | None = None) -> Path:
    """Put a job into the archive, by default one that has succeeded; its file."""
    folder = path / "queue" / "archive" / str(job_id // 10_000)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"job-{job_id}"
    place.write_bytes(job(job_id, opcode(status="success")) if content is None else content)
    return place


def content(path: Path) -> dict[str, object]:
    """What the plain files there hold, and where the links lead."""
    found: dict[str, object] = {}
    for one in sorted(path.rglob("*")):
        if one.is_symlink():
            found[str(one)] = os.readlink(one)
        elif one.is_file():
            found[str(one)] = one.read_bytes()
    return found


def make_old(path: Path) -> None:
    """Set times of access so that each reading would set a new one, also with ``relatime``."""
    for one in [path, *path.rglob("*")]:
        if not one.is_symlink():
            os.utime(one, (1_000_000_000, 1_000_000_001))


def marks(path: Path) -> dict[str, object]:
    """Modes, owners and times of everything there, also those of access."""
    found: dict[str, object] = {}
    for one in [path, *sorted(path.rglob("*"))]:
        status = one.lstat()
        times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
        found[str(one)] = (status.st_mode, status.st_uid, status.st_gid, status.st_ino, *times)
    return found


@contextlib.contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Fails if anything there is another one afterwards."""
    held = content(path)
    make_old(path)
    marked = marks(path)
    yield
    assert marks(path) == marked
    assert content(path) == held


_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(path: Path) -> Iterator[int]:
    """Meanwhile a process holds this file, as one of Ganeti holds its lock file; its pid."""
    path.touch()
    command = [sys.executable, "-S", "-c", _HOLD, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.communicate()
