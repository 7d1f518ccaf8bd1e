"""Proof of life: the process that holds a lock file is alive."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from tests.programs import Program
from tests.refusals import refusing

from ganger.storage import errors, settings
from ganger.storage.alive import directory_locks, lock_files, process_identity

IMPORT = "from ganger.storage.alive.lock_files import"
HOLD = """
import sys
from ganger.storage.alive import lock_files
held = lock_files.create(sys.argv[1], "job_000007_1")
print(held.path, flush=True)
sys.stdin.readline()
held.remove()
"""

HOLD_DIRECTORY = """
import sys
from pathlib import Path
from ganger.storage import errors
from ganger.storage.alive import directory_locks
try:
    lock = directory_locks.DirectoryLock(Path(sys.argv[1]))
except errors.GangerError as error:
    print(f"{error.name}: {error.text}", flush=True)
else:
    print("held", flush=True)
    sys.stdin.readline()
    lock.release()
    print("released", flush=True)
    sys.stdin.readline()
"""


HOLD_OFFLINE = """
import sys
from pathlib import Path
from ganger.storage import errors
from ganger.storage.alive import directory_locks
path, *to_write = sys.argv[1].split("?")
try:
    lock = directory_locks.OfflineLock(Path(path), to_write=bool(to_write))
except errors.GangerError as error:
    print(f"{error.name}: {error.text}", flush=True)
else:
    print("held", flush=True)
    sys.stdin.readline()
"""


HOLD_FILE_ALONE = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.readline()
"""
"""As daemons did that knew nothing of the lock on the directory."""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Program]:
    with Program(HOLD, tmp_path) as process:
        yield process


@pytest.fixture
def own(tmp_path: Path) -> Iterator[lock_files.LockFile]:
    held = lock_files.create(tmp_path, "job_000001_1")
    yield held
    held.remove()


def test_ones_own_lock_file_is_alive_and_stays_locked(own: lock_files.LockFile) -> None:
    assert not lock_files.is_dead(own.path)
    assert lock_files.holder(own.path) == os.getpid()
    # Asking must not have opened the file: closing it again would have dropped the lock.
    script = f"import sys; {IMPORT} is_dead; print(is_dead(sys.argv[1]))"
    answer = subprocess.check_output([sys.executable, "-c", script, own.path], text=True)
    assert answer.strip() == "False"


def test_a_removed_lock_file_is_dead_and_gone(own: lock_files.LockFile) -> None:
    own.remove()
    assert not os.path.lexists(own.path)
    assert lock_files.is_dead(own.path)
    assert lock_files.holder(own.path) is None
    own.remove()


def test_a_process_that_holds_one_is_alive_until_it_is_killed(other: Program) -> None:
    path = other.line
    assert not lock_files.is_dead(path)
    assert lock_files.holder(path) == other.pid
    other.end()
    assert lock_files.is_dead(path)
    assert lock_files.holder(path) is None
    lock_files.remove_dead(path)
    assert not os.path.lexists(path)


def test_a_stopped_process_is_alive(other: Program) -> None:
    os.kill(other.pid, signal.SIGSTOP)
    _, status = os.waitpid(other.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert not lock_files.is_dead(other.line)
    assert lock_files.holder(other.line) == other.pid


def test_asking_does_not_disturb_the_holder(other: Program) -> None:
    for _ in range(3):
        assert not lock_files.is_dead(other.line)
        assert lock_files.holder(other.line) == other.pid


def test_a_file_that_is_missing_means_dead(tmp_path: Path) -> None:
    assert lock_files.is_dead(tmp_path / "job_000009_1")
    assert lock_files.holder(tmp_path / "job_000009_1") is None
    lock_files.remove_dead(tmp_path / "job_000009_1")


def test_lock_files_of_dead_processes_of_jobs_are_deleted(other: Program, tmp_path: Path) -> None:
    for name in ("job_000007_1_aa", "job_000007_2_bb", "job_1000071_1_aa", "ganger-daemon_1"):
        (tmp_path / name).touch()
    lock_files.remove_dead_jobs(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {os.path.basename(other.line), "ganger-daemon_1"}


def test_lock_files_of_dead_daemons_are_deleted(tmp_path: Path) -> None:
    living = lock_files.create(tmp_path, "ganger-daemon_2")
    for name in ("job_000007_1_aa", "ganger-daemon_1", "ganger-daemon_1-1"):
        (tmp_path / name).touch()
    lock_files.remove_dead_daemons(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"job_000007_1_aa", os.path.basename(living.path)}
    living.remove()


def test_an_undeletable_file_does_not_keep_the_others(tmp_path: Path) -> None:
    (tmp_path / "job_000007_1_aa").mkdir()
    (tmp_path / "job_000007_2_bb").touch()
    lock_files.remove_dead_jobs(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["job_000007_1_aa"]


def test_nothing_is_deleted_in_a_folder_that_cannot_be_looked_through(tmp_path: Path) -> None:
    lock_files.remove_dead_jobs(tmp_path / "missing")


@pytest.mark.parametrize("path", ["with\0zero", "\ud800", "/long" * 1_000, "/etc/passwd/x"])
def test_no_process_holds_a_file_that_cannot_be(path: str) -> None:
    assert lock_files.is_dead(path)
    assert lock_files.holder(path) is None


def test_an_error_while_asking_means_not_dead(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()

    def refuse(*_: object) -> int:
        raise PermissionError

    with mock.patch.object(os, "open", refuse):
        assert not lock_files.is_dead(path)
    with mock.patch.object(fcntl, "lockf", refuse):
        assert not lock_files.is_dead(path)


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    (tmp_path / "job_000001_1").touch()
    first = lock_files.create(tmp_path, "job_000001_1")
    second = lock_files.create(tmp_path, "job_000001_1")
    assert [first.path, second.path] == [f"{tmp_path}/job_000001_1-{number}" for number in (1, 2)]
    first.remove()
    assert not lock_files.is_dead(second.path)
    second.remove()


def test_names_run_out_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_files, "_ATTEMPTS_MAX", 2)
    held = [lock_files.create(tmp_path, "x") for _ in range(2)]
    with pytest.raises(errors.StorageError, match="x: 2 files of this name exist"):
        lock_files.create(tmp_path, "x")
    for one in held:
        one.remove()


def test_a_lock_file_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.StorageError, match=f"{tmp_path}/file/x: Not a directory"):
        lock_files.create(tmp_path / "file", "x")


def test_a_lock_file_that_cannot_be_removed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.StorageError, match=str(tmp_path)):
        lock_files.remove_dead(tmp_path)


def test_the_name_of_a_job_is_that_of_ganeti_with_the_mark_of_the_process() -> None:
    mark = process_identity.own()
    name = lock_files.job_stem(1, 1_795_224_833.9, mark)
    assert name == f"job_000001_1795224833_{mark}"
    assert lock_files.identity_of(f"/l/{name}") == mark
    assert lock_files.job_stem(12_345_678, 5.0, mark).startswith("job_12345678_5_")


@pytest.mark.parametrize(
    "name", ["job_000001_1795224833", "job_000001_1795224833_5e6f7a8b", "ganger-daemon_1.2.3", "x"]
)
def test_other_names_have_no_mark(name: str) -> None:
    assert lock_files.identity_of(name) is None


# Deleted lock files, and a disk that refuses them.


HOLD_MARKED = """
import sys
from ganger.storage.alive import lock_files, process_identity
stem = lock_files.job_stem(7, 1.0, process_identity.own())
spare = sys.argv[1] + "/spare_1_1"
held = lock_files.create(sys.argv[1], stem, spare=spare)
print(held.path, flush=True)
sys.stdin.readline()
held.remove()
print("removed", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Program]:
    process = Program(HOLD_MARKED, tmp_path / "livelocks")
    yield process
    process.end()


def test_a_process_whose_lock_file_was_deleted_is_alive_until_it_ends(
    marked: Program, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "livelocks")
    assert not lock_files.is_dead(marked.line)
    assert lock_files.holder(marked.line) == marked.pid
    marked.end()
    assert lock_files.is_dead(marked.line)
    assert lock_files.holder(marked.line) is None


def test_an_unlocked_file_in_its_place_does_not_kill_a_process(marked: Program) -> None:
    os.unlink(marked.line)
    Path(marked.line).touch()
    assert not lock_files.is_dead(marked.line)
    assert lock_files.holder(marked.line) == marked.pid
    lock_files.remove_dead(marked.line)
    assert os.path.exists(marked.line)


def test_the_owner_of_a_file_in_a_copied_directory_is_elsewhere(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    marked = Program(HOLD_MARKED, data / "livelocks")
    try:
        shutil.copytree(data, tmp_path / "copy")
        here = tmp_path / "copy" / "livelocks"
        copied = here / os.path.basename(marked.line)
        assert lock_files.holder(copied) == marked.pid
        assert lock_files.is_elsewhere(copied, here)
        # The files of the copy name the lock file by the path that it had.
        assert lock_files.is_elsewhere(marked.line, here)
        os.unlink(copied)
        assert lock_files.is_elsewhere(copied, here)
        assert not lock_files.is_elsewhere(marked.line, data / "livelocks")
    finally:
        marked.end()
    assert not lock_files.is_elsewhere(copied, here)


@pytest.mark.parametrize("change", ["linked", "moved", "deleted", "folder moved"])
def test_a_directory_under_another_name_is_no_copy(tmp_path: Path, change: str) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir()
    marked = Program(HOLD_MARKED, data / "livelocks")
    try:
        match change:
            case "linked":
                other.symlink_to(data)
            case "moved":
                data.rename(other)
            case "deleted":
                other = data
                os.unlink(marked.line)
            case "folder moved":
                other = data
                (data / "livelocks").rename(data / "livelocks.old")
        assert lock_files.holder(marked.line) == marked.pid
        assert not lock_files.is_elsewhere(marked.line, other / "livelocks")
    finally:
        marked.end()


@pytest.mark.parametrize("other", ["start", "boot"])
def test_the_next_process_with_its_number_is_not_taken_for_it(tmp_path: Path, other: str) -> None:
    mark = process_identity.own()
    mark = mark._replace(start=mark.start + 1) if other == "start" else mark._replace(boot="0ther")
    path = tmp_path / lock_files.job_stem(7, 1.0, mark)
    assert lock_files.is_dead(path)
    assert lock_files.holder(path) is None


def test_a_folder_that_was_deleted_is_made_again_but_not_its_parents(tmp_path: Path) -> None:
    stem = lock_files.job_stem(7, 1.0, process_identity.own())
    for folder, is_made in ((tmp_path / "livelocks", True), (tmp_path / "gone" / "it", False)):
        held = lock_files.create(folder, stem)
        assert os.path.exists(held.path) == is_made
        held.remove()
    assert (tmp_path / "livelocks").stat().st_mode & 0o777 == 0o700
    assert os.listdir(tmp_path) == ["livelocks"]


def test_a_file_serves_the_next_process_under_another_name(tmp_path: Path) -> None:
    spare = f"{tmp_path}/spare_1_1"
    numbers = set()
    for start in range(3):
        mark = process_identity.ProcessIdentity(os.getpid(), start, "boot")
        held = lock_files.create(tmp_path, lock_files.job_stem(7, 1.0, mark), spare=spare)
        assert not os.path.exists(spare)
        numbers.add(os.stat(held.path).st_ino)
        held.remove()
        assert lock_files.is_dead(held.path)
        assert os.listdir(tmp_path) == ["spare_1_1"]
    assert len(numbers) == 1
    lock_files.remove_spares(os.fspath(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_spare_that_another_process_probes_is_left_alone(tmp_path: Path) -> None:
    spare = tmp_path / "spare_1_1"
    spare.touch()
    with Program(HOLD_OFFLINE, spare) as other:
        assert other.line == "held"
        stem = lock_files.job_stem(7, 1.0, process_identity.own())
        held = lock_files.create(tmp_path, stem, spare=os.fspath(spare))
        assert os.stat(held.path).st_ino != spare.stat().st_ino
        held.remove()


def test_a_file_that_serves_another_process_meanwhile_misleads_no_prober(
    marked: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stem = lock_files.job_stem(6, 1.0, process_identity.ProcessIdentity(1, 0, "boot"))
    first = f"{tmp_path}/livelocks/{stem}"
    os.link(marked.line, first)
    real = fcntl.lockf

    def renamed_meanwhile(descriptor: int, kind: int) -> None:
        if os.path.exists(first):
            os.unlink(first)
        real(descriptor, kind)

    monkeypatch.setattr(fcntl, "lockf", renamed_meanwhile)
    assert lock_files.is_dead(first)
    assert not lock_files.is_dead(marked.line)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_the_file_leaves_the_mark_as_proof(tmp_path: Path, code: int) -> None:
    stem = lock_files.job_stem(7, 1.0, process_identity.own())
    with refusing("open", number=code):
        held = lock_files.create(tmp_path, stem)
    script = f"import sys; {IMPORT} holder; print(holder(sys.argv[1]))"
    answer = subprocess.check_output([sys.executable, "-c", script, held.path], text=True)
    assert answer.strip() == str(os.getpid())
    held.remove()


# The lock on a queue directory.


def held_elsewhere(path: Path) -> str:
    """What another daemon says that wants the directory, and ends."""
    with Program(HOLD_DIRECTORY, path) as other:
        return other.line


def test_a_second_daemon_is_refused_until_the_first_gives_up(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with Program(HOLD_DIRECTORY, path) as first:
        assert first.line == "held"
        with pytest.raises(errors.DirectoryLockedError) as caught:
            directory_locks.DirectoryLock(path)
        assert caught.value.text == f"{tmp_path}: another daemon uses this queue directory"
        first.go_on()
        assert first.next_line() == "released"
        directory_locks.DirectoryLock(path).release()


def test_the_directory_of_a_killed_daemon_is_free(tmp_path: Path) -> None:
    first = Program(HOLD_DIRECTORY, tmp_path / "lock")
    assert first.line == "held"
    first.end()
    directory_locks.DirectoryLock(tmp_path / "lock").release()


def test_the_queue_directory_must_exist(tmp_path: Path) -> None:
    with pytest.raises(errors.StorageError, match="No such file"):
        directory_locks.DirectoryLock(tmp_path / "missing" / "lock")


# Work on a queue directory while no daemon runs.


@pytest.mark.parametrize("to_write", ["", "?"])
def test_a_daemon_keeps_offline_commands_out(tmp_path: Path, to_write: str) -> None:
    path = tmp_path / "lock"
    held = directory_locks.DirectoryLock(path)
    with Program(HOLD_OFFLINE, f"{path}{to_write}") as other:
        assert other.line == (
            f"DirectoryLockedError: {tmp_path}: "
            f"a daemon (pid {os.getpid()}) uses this queue directory"
        )
    held.release()


@pytest.mark.parametrize("to_write", ["", "?"])
def test_an_offline_lock_keeps_daemons_out_and_is_not_taken_for_one(
    tmp_path: Path, to_write: str
) -> None:
    path = tmp_path / "lock"
    path.touch()
    with Program(HOLD_OFFLINE, f"{path}{to_write}") as other:
        assert other.line == "held"
        with pytest.raises(errors.DirectoryLockedError):
            directory_locks.DirectoryLock(path)
        assert lock_files.holder(path) is None
        with pytest.raises(errors.DirectoryLockedError) as caught:
            directory_locks.OfflineLock(path, to_write=True)
        text = f"{tmp_path}: another process works on this queue directory"
        assert caught.value.text == text
    directory_locks.DirectoryLock(path).release()


def test_two_may_look_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with Program(HOLD_OFFLINE, path) as other:
        assert other.line == "held"
        directory_locks.OfflineLock(path, to_write=False).release()


def test_a_check_makes_no_lock_file_and_keeps_daemons_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    looking = directory_locks.OfflineLock(path, to_write=False)
    also_looking = directory_locks.OfflineLock(path, to_write=False)
    assert held_elsewhere(path).startswith("DirectoryLockedError")
    looking.confirm()
    assert not path.exists()
    looking.release()
    also_looking.release()
    assert held_elsewhere(path) == "held"


def test_a_check_notices_a_daemon_of_an_earlier_version(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    looking = directory_locks.OfflineLock(path, to_write=False)
    looking.confirm()
    assert not path.exists()
    with (
        Program(HOLD_FILE_ALONE, path) as daemon,
        pytest.raises(errors.DirectoryLockedError, match=f"pid {daemon.pid}"),
    ):
        looking.confirm()
    looking.release()


def test_a_repair_makes_the_lock_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    repairing = directory_locks.OfflineLock(path, to_write=True)
    repairing.confirm()
    assert path.exists()
    repairing.release()
    repairing.release()


# The lock file of a queue directory is deleted, or the directory.


@pytest.mark.slow
def test_without_its_lock_file_a_directory_is_held_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = directory_locks.DirectoryLock(path)
    path.unlink()
    refusal = f"DirectoryLockedError: {tmp_path}: another daemon uses this queue directory"
    assert held_elsewhere(path) == refusal
    for mode in ("", "?"):
        other = Program(HOLD_OFFLINE, f"{path}{mode}")
        assert other.line.startswith("DirectoryLockedError")
        other.end()
    held.release()
    assert held_elsewhere(path) == "held"


@pytest.mark.parametrize("replacement", [None, b"another file"])
def test_a_deleted_lock_file_is_put_back(tmp_path: Path, replacement: bytes | None) -> None:
    path = tmp_path / "lock"
    held = directory_locks.DirectoryLock(path)
    assert not held.keep()
    path.unlink()
    if replacement is not None:
        path.write_bytes(replacement)
    assert held.keep()
    assert not held.keep()
    other = Program(HOLD_OFFLINE, path)
    assert f"a daemon (pid {os.getpid()}) uses" in other.line
    other.end()
    held.release()
    assert held_elsewhere(path) == "held"


def test_a_disk_that_refuses_the_lock_file_again_loses_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = directory_locks.DirectoryLock(path)
    path.unlink()
    path.mkdir()
    assert not held.keep()
    path.rmdir()
    assert held.keep()
    held.release()


@pytest.mark.parametrize("becomes", ["deleted", "moved", "replaced"])
def test_a_directory_that_is_gone_is_lost(tmp_path: Path, becomes: str) -> None:
    queue = tmp_path / "queue"
    queue.mkdir()
    held = directory_locks.DirectoryLock(queue / "lock")
    queue.rename(tmp_path / "moved")
    if becomes == "deleted":
        shutil.rmtree(tmp_path / "moved")
    if becomes == "replaced":
        queue.mkdir()
    text = f"{queue}: deleted or replaced while the daemon ran"
    with pytest.raises(errors.DirectoryLostError, match=re.escape(text)):
        held.keep()
    if becomes == "replaced":
        assert held_elsewhere(queue / "lock") == "held"
    held.release()


def test_a_directory_whose_lock_file_another_process_holds_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = directory_locks.DirectoryLock(path)
    path.unlink()
    with Program(HOLD_FILE_ALONE, path) as other:
        assert other.line == "held"
        with pytest.raises(errors.DirectoryLostError, match="another daemon uses"):
            held.keep()
    held.release()


INHERIT = """
import os, subprocess, sys
from pathlib import Path
from ganger.storage.alive import directory_locks
lock = directory_locks.DirectoryLock(Path(sys.argv[1]))
passed = lock.directory_descriptor
left = subprocess.Popen(["sleep", "1"], pass_fds=[passed], stdout=subprocess.DEVNULL)
print(left.pid, flush=True)
os._exit(0)
"""


def test_a_start_waits_for_what_a_killed_daemon_has_left_running(tmp_path: Path) -> None:
    with Program(INHERIT, tmp_path / "lock") as program:
        left = process_identity.open_pidfd(int(program.line))
    lock = directory_locks.DirectoryLock(tmp_path / "lock")
    # It has ended, and so its copy of the lock.
    assert select.select([left], [], [], 0)[0]
    os.close(left)
    lock.release()


@pytest.mark.parametrize("to_write", [False, True])
def test_a_check_waits_for_what_a_killed_daemon_has_left_running(
    tmp_path: Path, *, to_write: bool
) -> None:
    told: list[str] = []
    with Program(INHERIT, tmp_path / "lock") as program:
        left = process_identity.open_pidfd(int(program.line))
    lock = directory_locks.OfflineLock(
        tmp_path / "lock", to_write=to_write, when_waiting=lambda: told.append("waits")
    )
    assert select.select([left], [], [], 0)[0]
    assert told == ["waits"]
    os.close(left)
    lock.release()


def test_a_start_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "ORPHAN_SECONDS", 0.05)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(errors.DirectoryLockedError):
        directory_locks.DirectoryLock(tmp_path / "lock")
    with pytest.raises(errors.DirectoryLockedError, match="another process works on"):
        directory_locks.OfflineLock(tmp_path / "lock", to_write=False)
    os.close(descriptor)


# A process that serves one job after the other.


SERVE_TWO = """
import sys
from ganger.storage.alive import lock_files, process_identity
own = process_identity.own()
spare = sys.argv[1] + "/spare_1_1"
for job_id in (7, 8):
    if job_id == 8:
        process_identity.show_job(8)
    held = lock_files.create(sys.argv[1], lock_files.job_stem(job_id, 1.0, own), spare=spare)
    print(held.path, flush=True)
    sys.stdin.readline()
    process_identity.show_job(None)
    print("left", flush=True)
    sys.stdin.readline()
    held.remove()
    print("removed", flush=True)
    sys.stdin.readline()
"""


def test_a_living_process_owns_the_lock_file_of_its_present_job_alone(tmp_path: Path) -> None:
    with Program(SERVE_TWO, tmp_path / "livelocks") as process:
        first = process.line
        assert not lock_files.is_dead(first)
        process.go_on()
        assert process.next_line() == "left"
        # The lock counts before the name.
        assert not lock_files.is_dead(first)
        process.go_on()
        assert process.next_line() == "removed"
        assert lock_files.is_dead(first)
        assert lock_files.holder(first) is None
        process.go_on()
        second = process.next_line()
        # A deleted file changes nothing.
        os.unlink(second)
        assert not lock_files.is_dead(second)
        assert lock_files.holder(second) == process.pid
        assert lock_files.is_dead(first)
        process.go_on()
        assert process.next_line() == "left"
        assert lock_files.is_dead(second)


def test_a_process_with_any_other_name_serves_the_job_of_its_lock_file(tmp_path: Path) -> None:
    script = """
import sys
from ganger.storage.alive import lock_files, process_identity
held = lock_files.create(sys.argv[1], lock_files.job_stem(7, 1.0, process_identity.own()))
for name in ("jobs", "job", "a) job 8"):
    with open("/proc/self/comm", "w") as file:
        file.write(name)
    print(held.path, flush=True)
    sys.stdin.readline()
"""
    with Program(script, tmp_path / "livelocks") as process:
        path = process.line
        os.unlink(path)
        for _ in range(3):
            assert not lock_files.is_dead(path)
            process.go_on()
            process.next_line()
