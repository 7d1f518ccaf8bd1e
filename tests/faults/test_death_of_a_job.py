"""The process of a job dies, stops, or outlives the daemon: its job ends as it should."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.actors.processes.test_control_groups import WRITABLE
from tests.faults.harness import (
    Daemon,
    process_of,
    stop,
    until,
    wait_for_end,
    wait_until_gone,
    wait_until_true,
)

from ganger import Client, JobStatus
from ganger.storage.alive import process_identity
from ganger.storage.jobs.job_views import LogLine, StatusChange
from ganger.storage.locks import lock_journal
from ganger.storage.locks.locks import encode_locks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


RESERVED_SIGNALS = 0b11 << 31
"""Signals 32 and 33 belong to the C library; no program can change them."""


def start_gated(daemon: Daemon, client: Client, lock: str = "n1") -> tuple[int, Path]:
    """A running job that ends when the test writes to its fifo, and holds a lock."""
    fifo = daemon.folder / f"gate-{lock}"
    os.mkfifo(fifo)
    job_id = client.submit(
        {
            "OP_ID": "OP_EXEC",
            # exec: a shell that forks blocks all signals for a moment, which is not ours to judge.
            "argv": ["sh", "-c", f"echo started; exec cat {fifo}"],
            "locks": {"node": {"exclusive": [lock]}},
        }
    )
    # The first line of its output says that the command itself runs, not only its job.
    for part in client.watch(job_id, timeout=30):
        if isinstance(part, LogLine):
            return job_id, fifo
    raise AssertionError("the command did not start")


def lock_job(client: Client, lock: str = "n1") -> int:
    return client.submit(
        {"OP_ID": "OP_EXEC", "argv": ["true"], "locks": {"node": {"exclusive": [lock]}}}
    )


def waiting_job(client: Client) -> int:
    """A job that waits for the lock of another."""
    job_id = lock_job(client)
    until(client, job_id, JobStatus.WAITING)
    return job_id


def test_the_job_of_a_killed_process_ends_in_an_error_and_frees_its_locks(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, daemon.client() as client:
        job_id, _ = start_gated(daemon, client)
        daemon.run("cluster", "modify", "--no-hold-back")
        waiter = waiting_job(client)
        process_id = process_of(client, job_id)
        commands = psutil.Process(process_id).children(recursive=True)
        os.kill(process_id, signal.SIGKILL)
        [dead, served] = client.wait(job_id, waiter, timeout=10)
        assert dead.status is JobStatus.ERROR
        assert dead.ops is not None
        assert f"detected death of job {job_id}" in dead.ops[0].result
        assert served.status is JobStatus.SUCCESS
        assert commands
        # No command of the dead job goes on without its locks.
        wait_until_gone(*(command.pid for command in commands))


def test_a_stopped_process_is_alive_and_keeps_its_locks(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, daemon.client() as client:
        job_id, fifo = start_gated(daemon, client)
        process_id = process_of(client, job_id)
        stop(process_id)
        daemon.replace_killed()
        daemon.run("cluster", "modify", "--no-hold-back")
        waiter = waiting_job(client)
        assert client.job(job_id).status is JobStatus.RUNNING
        os.kill(process_id, signal.SIGCONT)
        fifo.write_text("go\n")
        ended = client.wait(job_id, waiter, timeout=30)
        assert [job.status for job in ended] == [JobStatus.SUCCESS, JobStatus.SUCCESS]


def test_a_job_that_ends_while_no_daemon_runs_is_believed(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        with daemon.client() as client:
            job_id, fifo = start_gated(daemon, client)
            process_id = process_of(client, job_id)
        descriptor = process_identity.open_pidfd(process_id)
        daemon.kill()
        fifo.write_text("alone\n")
        wait_for_end(descriptor)
        daemon.up()
        with daemon.client() as client:
            job = client.job(job_id)
            assert job.status is JobStatus.SUCCESS
            assert job.ops is not None
            assert job.ops[0].result["stdout_tail"] == "started\nalone\n"
            assert [entry.text for entry in job.ops[0].log] == ["started", "alone"]


def test_a_job_killed_while_no_daemon_runs_ends_in_an_error(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        with daemon.client() as client:
            job_id, _ = start_gated(daemon, client)
            process_id = process_of(client, job_id)
        daemon.kill()
        os.kill(process_id, signal.SIGKILL)
        daemon.up()
        with daemon.client() as client:
            [job] = client.wait(job_id, timeout=10)
            assert job.status is JobStatus.ERROR
            assert client.locks() == []


class Strangers:
    """A session of another program, whose leader has ended and whose number may be a job's too."""

    def __init__(self) -> None:
        leader = subprocess.Popen(
            ["sh", "-c", "sleep 600 >&- & echo $$ $!"],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        output, _ = leader.communicate()
        self.leader, self.member = map(int, output.split())
        self._member = process_identity.open_pidfd(self.member)

    def assert_untouched(self) -> None:
        assert os.getsid(self.member) == self.leader
        assert psutil.Process(self.member).status() == psutil.STATUS_SLEEPING

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._member, signal.SIGKILL)
        wait_for_end(self._member)


@pytest.fixture
def strangers() -> Iterator[Strangers]:
    strangers = Strangers()
    yield strangers
    strangers.end()


@pytest.mark.parametrize("named", ["in the job file", "in the lock file's name too", "alone"])
def test_a_stranger_with_the_stored_number_of_a_dead_job_is_left_alone(
    tmp_path: Path, strangers: Strangers, named: str
) -> None:
    with Daemon(tmp_path) as daemon:
        with daemon.client() as client:
            job_id, _ = start_gated(daemon, client)
            process_id = process_of(client, job_id)
        daemon.kill()
        for process in [*psutil.Process(process_id).children(), psutil.Process(process_id)]:
            process.kill()
        # The journal stands on the file as it is, so its changes must be in there first.
        stored = lock_journal.read(daemon.places)
        daemon.places.locks.write_bytes(encode_locks(stored.file))
        for path in (daemon.places.queue / f"job-{job_id}", daemon.places.locks):
            fields = json.loads(path.read_bytes())
            text = json.dumps(fields).replace(str(process_id), str(strangers.leader))
            if named == "in the job file":
                text = text.replace(f"_{strangers.leader}.", f"_{process_id}.")
            elif named == "alone":
                text = re.sub(rf"(job_\d+_\d+)_{strangers.leader}[.\w]*", r"\1", text)
            path.write_text(text)
        for segment in daemon.places.journal.iterdir():
            # What it says of the job is what the file said.
            segment.unlink()
        daemon.up()
        with daemon.client() as client:
            [job] = client.wait(job_id, timeout=10)
            assert job.status is JobStatus.ERROR
            assert client.locks() == []
        strangers.assert_untouched()


def test_a_job_that_waits_for_a_lock_gets_it_from_the_successor(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, daemon.client() as client:
        job_id, fifo = start_gated(daemon, client)
        daemon.run("cluster", "modify", "--no-hold-back")
        waiter = waiting_job(client)
        daemon.replace_killed()
        fifo.write_text("go\n")
        ended = client.wait(job_id, waiter, timeout=30)
        assert [job.status for job in ended] == [JobStatus.SUCCESS, JobStatus.SUCCESS]
        assert client.locks() == []


def test_a_job_process_inherits_nothing_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "not for jobs")
    with Daemon(tmp_path) as daemon, daemon.client() as client:
        job_id, fifo = start_gated(daemon, client)
        process_id = process_of(client, job_id)
        process = psutil.Process(process_id)
        assert os.getsid(process_id) == process_id
        [command] = process.children()
        status = dict(
            line.split(":\t", 1)
            for line in (tmp_path.__class__("/proc") / str(command.pid) / "status")
            .read_text()
            .splitlines()
            if ":\t" in line
        )
        assert int(status["SigIgn"], 16) & ~RESERVED_SIGNALS == 0
        assert int(status["SigBlk"], 16) == 0
        assert "SECRET_OF_THE_DAEMON" not in command.environ()
        # The loader of the program may still have a library open.
        wait_until_true(
            lambda: {*os.listdir(f"/proc/{command.pid}/fd")} == {"0", "1", "2"},
            "the command has its three streams and nothing else open",
        )
        kinds = [
            os.readlink(f"/proc/{process_id}/fd/{name}")
            for name in os.listdir(f"/proc/{process_id}/fd")
        ]
        # Null, two logs, its channel and its lock file; pipes and pidfd of the command.
        assert sum("livelocks/job_" in kind for kind in kinds) == 1
        assert sum(kind.startswith("socket:") for kind in kinds) == 1
        descriptor = process_identity.open_pidfd(process_id)
        fifo.write_text("go\n")
        client.wait(job_id, timeout=30)
        # The end is announced as soon as it is durable; the process leaves a moment later.
        wait_for_end(descriptor)
        assert not list(daemon.places.lock_files.glob("job_*"))


ESCAPED = (
    # Each in a session of its own; the second without the environment that would tell whose it is.
    "setsid sh -c 'echo $$ > {0}/one; exec sleep 600' > /dev/null 2>&1 & "
    "setsid env -i /bin/sh -c 'echo $$ > {0}/two; exec /bin/sleep 600' > /dev/null 2>&1 & "
    "until test -s {0}/one -a -s {0}/two; do sleep 0.02; done; "
)


def escaped(folder: Path) -> list[int]:
    pids = (int((folder / name).read_text()) for name in ("one", "two"))
    return [process_identity.open_pidfd(pid) for pid in pids]


def have_ended(pidfds: list[int]) -> list[bool]:
    found = [select.select([pidfd], [], [], 0)[0] != [] for pidfd in pidfds]
    for pidfd in pidfds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
    return found


def submit_escaping(daemon: Daemon, client: Client, end: str, **fields: Any) -> int:
    """A job whose command starts two processes that leave its session, and then does ``end``."""
    return client.submit(
        {
            "OP_ID": "OP_EXEC",
            "argv": ["sh", "-c", ESCAPED.format(daemon.folder) + end],
            "locks": {"node": {"exclusive": ["n1"]}},
            **fields,
        }
    )


def when_started(client: Client, job_id: int, folder: Path) -> list[int]:
    """The escaped processes, as soon as the command says that they are there."""
    for part in client.watch(job_id, timeout=30):
        if not isinstance(part, StatusChange):
            return escaped(folder)
    raise AssertionError("the command did not start")


def test_what_leaves_the_session_of_a_job_has_ended_before_its_lock_is_free(
    tmp_path: Path,
) -> None:
    with Daemon(tmp_path) as daemon, daemon.client() as client:
        os.mkfifo(tmp_path / "gate")
        job_id = submit_escaping(daemon, client, f"echo started; cat {tmp_path}/gate")
        pidfds = when_started(client, job_id, tmp_path)
        daemon.run("cluster", "modify", "--no-hold-back")
        waiter = waiting_job(client)
        (tmp_path / "gate").write_text("go\n")
        [served] = client.wait(waiter, timeout=30)
        assert have_ended(pidfds) == [True, True]
        assert served.status is JobStatus.SUCCESS
        job = client.job(job_id)
        assert job.status is JobStatus.SUCCESS
        assert job.ops is not None
        assert job.ops[0].log[-1].text == "Ended processes that it left behind: 2"


def test_what_is_to_go_on_goes_on(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, daemon.client() as client:
        job_id = submit_escaping(daemon, client, "true", leave_running=True)
        second = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]})
        ended = client.wait(job_id, second, timeout=30)
        assert [job.status for job in ended] == [JobStatus.SUCCESS] * 2
        assert have_ended(escaped(tmp_path)) == [False, False]


def test_what_has_left_the_session_of_a_killed_job_is_found_by_its_environment(
    tmp_path: Path,
) -> None:
    with Daemon(tmp_path) as daemon, daemon.client() as client:
        job_id = submit_escaping(daemon, client, "echo started; exec sleep 600")
        pidfds = when_started(client, job_id, tmp_path)
        daemon.run("cluster", "modify", "--no-hold-back")
        waiter = waiting_job(client)
        process_id = process_of(client, job_id)
        os.kill(process_id, signal.SIGKILL)
        [dead, served] = client.wait(job_id, waiter, timeout=30)
        has_ended, has_hidden_ended = have_ended(pidfds)
        assert has_ended
        # Only a control group leads to one that hides its environment as well.
        assert has_hidden_ended == bool(WRITABLE)
        assert (dead.status, served.status) == (JobStatus.ERROR, JobStatus.SUCCESS)
