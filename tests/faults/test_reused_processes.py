"""Processes that serve several jobs, one after the other: which do, and what ends them."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import pytest
from tests.faults.harness import (
    LOOK_SECONDS,
    Daemon,
    process_of,
    until,
    wait_for_end,
    wait_until_gone,
)

from ganger import Client, JobStatus
from ganger.storage import settings
from ganger.storage.alive import process_identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLUG_IN = """
import os
import resource
import signal
import subprocess
import threading

from ganger import Opcode


class OpTidy(Opcode, kw_only=True):
    op_id = "OP_TIDY"
    reuses_process = True

    def run(self, context):
        return os.getpid()


class OpUndeclared(Opcode, kw_only=True):
    op_id = "OP_UNDECLARED"

    def run(self, context):
        return os.getpid()


class OpChange(Opcode, kw_only=True):
    op_id = "OP_CHANGE"
    reuses_process = True
    what: str

    def run(self, context):
        getattr(self, self.what)()
        return os.getpid()

    def directory(self):
        os.chdir("/tmp")

    def umask(self):
        os.umask(0o027)

    def handler(self):
        signal.signal(signal.SIGUSR1, lambda *_: None)

    def ignored(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def mask(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])

    def environment(self):
        os.environ["LEFT_BEHIND"] = "1"

    def descriptor(self):
        os.open("/dev/null", os.O_RDONLY)

    def replaced_descriptor(self):
        other = os.open("/dev/zero", os.O_RDONLY)
        os.dup2(other, 0)
        os.close(other)

    def memory_limit(self):
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (64 << 30, hard))

    def memory(self):
        type(self).kept = bytearray(os.urandom(80 << 20))

    def timer(self):
        signal.setitimer(signal.ITIMER_REAL, 3600)

    def niceness(self):
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, own + 1 if own < 19 else own - 1)

    def thread(self):
        threading.Thread(target=threading.Event().wait, daemon=True).start()

    def name(self):
        with open("/proc/self/comm", "w") as file:
            file.write("another")
"""

TIDY = {"OP_ID": "OP_TIDY"}
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001, "on_master": False}
CHANGES = [
    *("directory", "umask", "handler", "ignored", "mask", "environment", "descriptor"),
    *("replaced_descriptor", "memory_limit", "memory", "timer", "niceness", "thread", "name"),
]


def install(folder: Path) -> Path:
    """A package with opcodes, as an installer leaves it."""
    about = folder / "changing-1.dist-info"
    about.mkdir(parents=True)
    (folder / "changing.py").write_text(PLUG_IN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: changing\nVersion: 1\n")
    names = ("Tidy", "Undeclared", "Change")
    lines = "".join(f"{name.lower()} = changing:Op{name}\n" for name in names)
    (about / "entry_points.txt").write_text(f"[ganger.opcodes]\n{lines}")
    return folder


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("reused")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.fspath(install(folder / "packages")))
        with Daemon(folder) as daemon:
            yield daemon


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as client:
        yield client


def ended(client: Client, *ops: dict[str, Any]) -> Any:
    """A job of these opcodes, which has ended."""
    [job] = client.wait(client.submit(list(ops)), timeout=30)
    return job


def served_by(client: Client, *ops: dict[str, Any]) -> int:
    """The process of a job of these opcodes, which must succeed."""
    job = ended(client, *ops)
    assert job.status is JobStatus.SUCCESS, job
    assert job.process_id is not None
    return int(job.process_id)


def reused(client: Client, *ops: dict[str, Any]) -> int:
    """A process that has served two such jobs, and is free again."""
    # The one that is free just after the end of a job may come too late for the next job.
    for _ in range(50):
        first = served_by(client, *ops)
        if served_by(client, *ops) == first:
            until_free(first)
            return first
    raise AssertionError("no process took another job")


def until_free(pid: int) -> None:
    """Wait until the process says that it serves no job."""
    while psutil.Process(pid).name() != "job -":
        time.sleep(LOOK_SECONDS)


def until_logged(daemon: Daemon, text: str) -> None:
    """The daemon writes its log on a thread of its own, a moment later."""
    deadline = time.monotonic() + 20
    while text not in daemon.places.log.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline, text
        time.sleep(LOOK_SECONDS)


def file_of(daemon: Daemon, job_id: int) -> list[str]:
    start = f"job_{job_id:06d}_"
    return [name for name in os.listdir(daemon.places.lock_files) if name.startswith(start)]


def gated(daemon: Daemon, name: str) -> dict[str, Any]:
    """A command that runs until the test opens its gate."""
    os.mkfifo(daemon.folder / name)
    return {
        "OP_ID": "OP_EXEC",
        "argv": ["cat", os.fspath(daemon.folder / name)],
        "locks": {"node": {"exclusive": [name]}},
    }


class Running(NamedTuple):
    """A running job on a process that has served another one."""

    earlier: int
    id: int
    pid: int
    lock: str
    gate: Path

    def end(self) -> None:
        """Let its command end."""
        self.gate.write_text("")


def running(daemon: Daemon, client: Client) -> Running:
    for _ in range(50):
        before = ended(client, DELAY)
        name = f"gate-{before.id}"
        job_id = client.submit(gated(daemon, name))
        until(client, job_id, JobStatus.RUNNING)
        gate = daemon.folder / name
        found = Running(before.id, job_id, process_of(client, job_id), name, gate)
        if found.pid == before.process_id:
            return found
        found.end()
        client.wait(job_id, timeout=30)
    raise AssertionError("no process took another job")


@pytest.mark.parametrize(
    "opcode",
    [
        TIDY,
        DELAY,
        {"OP_ID": "OP_EXEC", "argv": ["true"]},
        {**DELAY, "on_nodes": ["n1"]},
        {"OP_ID": "OP_TAGS_GET", "kind": "cluster", "name": None},
        {"OP_ID": "OP_QUERY_FIELDS", "what": "node", "fields": ["name"]},
    ],
    ids=lambda opcode: opcode["OP_ID"],
)
def test_a_process_serves_one_job_after_the_other(client: Client, opcode: dict[str, Any]) -> None:
    reused(client, opcode)


def test_opcodes_of_different_kinds_may_follow_each_other(client: Client) -> None:
    pid = reused(client, {"OP_ID": "OP_EXEC", "argv": ["true"]})
    assert served_by(client, DELAY, {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", "umask 0"]}) == pid


@pytest.mark.parametrize("what", CHANGES)
def test_a_process_that_its_job_has_changed_takes_no_other(
    daemon: Daemon, client: Client, what: str
) -> None:
    if what == "niceness" and os.getpriority(os.PRIO_PROCESS, 0) == 19 and os.geteuid():
        pytest.skip("the tests run with the highest niceness, and only root may lower it")
    pid = reused(client, TIDY)
    descriptor = process_identity.open_pidfd(pid)
    assert served_by(client, {"OP_ID": "OP_CHANGE", "what": what}) == pid
    wait_for_end(descriptor)
    until_logged(daemon, f'"job_pid": {pid}, "changed": ')
    assert served_by(client, TIDY) != pid


@pytest.mark.parametrize(
    ("opcode", "status"),
    [
        ({"OP_ID": "OP_EXEC", "argv": ["false"]}, JobStatus.ERROR),
        ({"OP_ID": "OP_EXEC", "argv": ["sleep", "60"], "timeout": 0.05}, JobStatus.ERROR),
        ({"OP_ID": "OP_EXEC", "argv": ["true"], "leave_running": True}, JobStatus.SUCCESS),
    ],
    ids=["error", "timeout", "leave_running"],
)
def test_a_process_ends_with_a_job_that_did_not_end_well_or_may_leave_something(
    client: Client, opcode: dict[str, Any], status: JobStatus
) -> None:
    job = ended(client, opcode)
    assert job.status is status
    wait_until_gone(job.process_id)


def test_a_killed_job_takes_its_process_along(daemon: Daemon, client: Client) -> None:
    killed = running(daemon, client)
    descriptor = process_identity.open_pidfd(killed.pid)
    client.cancel(killed.id, kill=True)
    wait_for_end(descriptor)
    [job] = client.wait(killed.id, timeout=30)
    assert job.status is JobStatus.ERROR


def test_jobs_that_do_not_declare_it_have_fresh_processes(client: Client) -> None:
    pid = reused(client, TIDY)
    other = served_by(client, {"OP_ID": "OP_UNDECLARED"})
    assert other != pid
    assert served_by(client, TIDY, {"OP_ID": "OP_UNDECLARED"}) not in (pid, other)


def test_no_process_serves_more_jobs_than_allowed(client: Client) -> None:
    count = settings.REUSED_PROCESS_JOBS_MAX + 30
    ids = client.submit_many([[DELAY]] * count)
    served = Counter(job.process_id for job in client.wait(*ids, timeout=60))
    assert max(served.values()) <= settings.REUSED_PROCESS_JOBS_MAX
    assert len(served) < count


def test_a_process_that_is_killed_between_jobs_is_missed_by_no_job(client: Client) -> None:
    pid = reused(client, DELAY)
    os.kill(pid, signal.SIGKILL)
    # Whether the daemon has noticed it yet or not.
    assert served_by(client, DELAY) != pid


def test_a_process_that_dies_with_its_second_job_takes_only_that_along(
    daemon: Daemon, client: Client
) -> None:
    second = running(daemon, client)
    os.kill(second.pid, signal.SIGKILL)
    [job] = client.wait(second.id, timeout=30)
    assert job.status is JobStatus.ERROR
    assert job.ops is not None
    assert f"detected death of job {second.id}" in job.ops[0].result
    assert client.job(second.earlier).status is JobStatus.SUCCESS
    # Its locks are free.
    assert served_by(client, {**DELAY, "on_nodes": [second.lock]}) != second.pid


def test_an_earlier_job_is_over_while_its_process_serves_another(
    daemon: Daemon, client: Client
) -> None:
    second = running(daemon, client)
    assert file_of(daemon, second.earlier) == []
    assert len(file_of(daemon, second.id)) == 1
    assert psutil.Process(second.pid).name() == f"job {second.id}"
    client.archive(second.earlier)
    second.end()
    client.wait(second.id, timeout=30)


def test_without_a_daemon_an_idle_process_ends_and_a_job_goes_on(
    daemon: Daemon, client: Client
) -> None:
    second = running(daemon, client)
    idle = process_identity.open_pidfd(reused(client, DELAY))
    daemon.kill()
    wait_for_end(idle)
    # Its lock file goes, and it is still the owner; the earlier job of its process has none.
    [name] = file_of(daemon, second.id)
    (daemon.places.lock_files / name).unlink()
    daemon.up()
    with daemon.client() as successor:
        assert successor.job(second.id).status is JobStatus.RUNNING
        successor.archive(second.earlier)
        descriptor = process_identity.open_pidfd(second.pid)
        second.end()
        [job] = successor.wait(second.id, timeout=30)
        assert job.status is JobStatus.SUCCESS
        # It has lost its first channel.
        wait_for_end(descriptor)


@pytest.mark.parametrize("component", ["executor", "job_queue", "lock_manager"])
def test_a_component_fails_while_a_process_serves_its_second_job(
    daemon: Daemon, client: Client, component: str
) -> None:
    second = running(daemon, client)
    daemon.crash(component)
    second.end()
    [job] = client.wait(second.id, timeout=30)
    assert job.status is JobStatus.SUCCESS
    assert client.job(second.earlier).status is JobStatus.SUCCESS
    reused(client, DELAY)


def test_fresh_processes_are_asked_for(tmp_path: Path) -> None:
    with Daemon(tmp_path, "--fresh-processes") as daemon, daemon.client() as client:
        ids = client.submit_many([[DELAY]] * 10)
        assert len({job.process_id for job in client.wait(*ids, timeout=30)}) == 10
        assert served_by(client, DELAY) != served_by(client, DELAY)
        assert "one for each job" in daemon.run("status").stdout
        assert not client.info().reuses_processes
