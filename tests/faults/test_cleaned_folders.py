"""The folders of a living daemon and its jobs are deleted: no living process counts as dead."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import GANGER, Daemon, process_of, stop, wait_for_end
from tests.faults.test_death_of_a_job import start_gated, waiting_job

from ganger import JobStatus
from ganger.storage.alive import process_identity

STATUS_TRIES_MAX = 60

if TYPE_CHECKING:
    from pathlib import Path


def wait_for_file(path: Path) -> None:
    """Wait until there is such a file."""
    deadline = time.monotonic() + 30.0
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def remove_whole(folder: Path) -> None:
    """Remove a folder into which a daemon may write until it notices."""
    deadline = time.monotonic() + 30.0
    while folder.exists():
        assert time.monotonic() < deadline
        shutil.rmtree(folder, ignore_errors=True)


def clean(daemon: Daemon) -> None:
    """What logind, a tidy script or a hasty hand may do."""
    for folder in (daemon.places.run, daemon.places.lock_files):
        shutil.rmtree(folder, ignore_errors=True)


def await_doors(daemon: Daemon) -> None:
    """Ask for the status until the daemon listens everywhere again: it looks once a second."""
    tries = itertools.count()
    while (shown := daemon.run("status", check=False)).returncode:
        assert next(tries) < STATUS_TRIES_MAX
    assert shown.stdout.startswith("Daemon:")


def test_a_daemon_whose_folders_are_gone_is_reached_again_and_its_jobs_live(
    tmp_path: Path,
) -> None:
    with Daemon(tmp_path) as daemon:
        with daemon.client() as client:
            job_id, fifo = start_gated(daemon, client)
            waiter = waiting_job(client)
            clean(daemon)
            later = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]})
            assert client.wait(later, timeout=30)[0].status is JobStatus.SUCCESS
        # Until each socket is back, `up` says which one is not served, and fails.
        await_doors(daemon)
        assert "The daemon already runs" in daemon.run("up").stdout
        with daemon.client() as client:
            states = [client.job(one).status for one in (job_id, waiter)]
            assert states == [JobStatus.RUNNING, JobStatus.WAITING]
            fifo.write_text("go\n")
            ended = client.wait(job_id, waiter, timeout=30)
            assert [job.status for job in ended] == [JobStatus.SUCCESS] * 2
        assert daemon.run("down").stdout == "The daemon has stopped\n"
        assert "clean" in daemon.run("fsck").stdout


@pytest.mark.parametrize("when", ["before the end of the daemon", "while there is none"])
def test_jobs_whose_lock_files_are_gone_are_adopted_and_keep_their_locks(
    tmp_path: Path, when: str
) -> None:
    with Daemon(tmp_path) as daemon:
        with daemon.client() as client:
            job_id, fifo = start_gated(daemon, client)
            waiter = waiting_job(client)
            process_id = client.job(job_id).process_id
        if when == "before the end of the daemon":
            clean(daemon)
            daemon.kill()
        else:
            daemon.kill()
            clean(daemon)
        assert "2 jobs" in daemon.run("fsck", check=False).stdout
        daemon.up()
        with daemon.client() as client:
            states = [client.job(one).status for one in (job_id, waiter)]
            assert states == [JobStatus.RUNNING, JobStatus.WAITING]
            assert client.job(job_id).process_id == process_id
            fifo.write_text("go\n")
            ended = client.wait(job_id, waiter, timeout=30)
            assert [job.status for job in ended] == [JobStatus.SUCCESS] * 2
            assert client.locks() == []


def test_a_job_that_dies_without_its_lock_file_ends_in_an_error_and_frees_its_locks(
    tmp_path: Path,
) -> None:
    with Daemon(tmp_path) as daemon, daemon.client() as client:
        job_id, _ = start_gated(daemon, client)
        waiter = waiting_job(client)
        clean(daemon)
        process_id = process_of(client, job_id)
        descriptor = process_identity.open_pidfd(process_id)
        os.kill(process_id, signal.SIGKILL)
        wait_for_end(descriptor)
        [dead, served] = client.wait(job_id, waiter, timeout=30)
        assert (dead.status, served.status) == (JobStatus.ERROR, JobStatus.SUCCESS)


def test_up_reports_a_daemon_that_does_not_answer(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        pid = daemon.pid()
        stop(pid)
        done = daemon.run("up", "--no-rapi", check=False)
        os.kill(pid, signal.SIGCONT)
        assert done.returncode == 1
        assert f"a daemon (pid {pid}) holds the queue in {daemon.data}, but does" in done.stderr


def test_no_second_daemon_starts_beside_one_whose_files_are_gone(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        pid = daemon.pid()
        with daemon.client() as client:
            job_id, fifo = start_gated(daemon, client)
        for file in (daemon.places.queue / "lock", daemon.places.endpoint_file):
            file.unlink()
        second = daemon.run("daemon", "--no-rapi", check=False)
        assert second.returncode == 70
        assert "another daemon uses this queue directory" in second.stderr
        await_doors(daemon)
        with daemon.client() as client:
            assert client.info(timeout=30).pid == pid
            fifo.write_text("go\n")
            assert client.wait(job_id, timeout=30)[0].status is JobStatus.SUCCESS
        assert f"already runs (pid {pid})" in daemon.run("up").stdout
        assert daemon.run("down").stdout == "The daemon has stopped\n"


@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_a_daemon_without_its_directory_ends_and_leaves_the_next_one_alone(
    tmp_path: Path, how: str
) -> None:
    daemon = Daemon(tmp_path)
    command = [*GANGER, "--data", str(daemon.data), "daemon", "--no-rapi"]
    pipe = subprocess.PIPE
    next_ones = tmp_path / "next"
    try:
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout is not None
            assert "ready" in process.stdout.readline()
            # The last file of a first start.
            wait_for_file(daemon.places.ssconf / "ssconf_release_version")
            if how == "moved":
                daemon.data.rename(tmp_path / "elsewhere")
                next_ones.mkdir()
                (next_ones / "daemon.json").touch()
                next_ones.rename(daemon.data)
            else:
                remove_whole(daemon.data)
            _, error = process.communicate(timeout=30)
        text = f"{daemon.places.queue}: deleted or replaced while the daemon ran"
        assert error == f"ganger: {text}\n"
        assert process.returncode == 70
        left = ["daemon.json"] if how == "moved" else []
        assert [path.name for path in daemon.data.rglob("*")] == left
        with daemon, daemon.client() as client:
            job_id = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]})
            assert client.wait(job_id, timeout=30)[0].status is JobStatus.SUCCESS
        if how == "moved":
            assert text in (tmp_path / "elsewhere" / "daemon.log").read_text()
    finally:
        process.kill()


def test_jobs_of_a_deleted_directory_leave_the_next_one_alone(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        with daemon.client() as client:
            first, fifo = start_gated(daemon, client)
            waiter = waiting_job(client)
            found = [client.job(one).process_id for one in (first, waiter)]
            pids = [pid for pid in found if pid is not None]
            processes = [process_identity.open_pidfd(pid) for pid in [client.info().pid, *pids]]
        # At one blow: the daemon may make files in it meanwhile.
        daemon.data.rename(tmp_path / "deleted")
        shutil.rmtree(tmp_path / "deleted", ignore_errors=True)
        wait_for_end(processes[0])
        daemon.up()
        with daemon.client() as client:
            client.add_filter(action="PAUSE")
            held = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]})
            assert held == first
            # The waiter gets the lock at once; the other one ends when its command does.
            wait_for_end(processes[2])
            fifo.write_text("go\n")
            wait_for_end(processes[1])
        assert client_sees(daemon, held) == (JobStatus.QUEUED, ["true"])
        daemon.replace_killed()
        assert client_sees(daemon, held) == (JobStatus.QUEUED, ["true"])


def client_sees(daemon: Daemon, job_id: int) -> tuple[JobStatus, object]:
    """The status of a job of one command, and that command."""
    with daemon.client() as client:
        job = client.job(job_id)
    assert job.ops is not None
    return job.status, job.ops[0].input["argv"]
