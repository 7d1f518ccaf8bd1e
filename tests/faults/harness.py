"""A real daemon in a directory of its own, with everything it started ended afterwards."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any, Literal, Self

import psutil
from tests import warm_starts

from ganger import Client
from ganger.storage import config_files
from ganger.storage.alive import process_identity
from ganger.storage.disk import documents, paths
from ganger.storage.jobs.job_views import StatusChange
from ganger.transport import frames
from ganger.transport.messages import ClientReply, CrashComponent
from ganger.transport.zmq.dealer import Dealer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ganger import JobStatus

GANGER = [sys.executable, "-m", "ganger.cli.entry"]

LOOK_SECONDS = 0.02
"""Between two looks at what tells nobody when it changes: a busy loop slows what it waits for."""

_MARK = "GANGER_TEST_FOLDER="
"""Begins what says in the environment of each process for which folder it works."""

_TOLD_BYTES_MAX = 1 << 21
"""What the kernel lets a program have as its words and its environment."""

_made: list[Daemon] = []
"""All of this process."""


class Daemon:
    """A daemon with test hooks, started through the command line.

    ``files_max``: how many files it, and each command, may open; None: as many as we.
    ``placement``: where its lock manager and configuration store live; GANGER_TEST_PLACEMENT has
    the default. ``holds_back``: whether jobs that must wait for locks stay in the queue, as is the
    default of a daemon; most tests want to see them wait with a process.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        files_max: int | None = None,
        placement: str | None = None,
        holds_back: bool = False,
    ) -> None:
        limit = ["sh", "-c", f'ulimit -n {files_max}; exec "$@"', "sh"]
        self._limited = [] if files_max is None else limit
        self.folder = folder
        self.placement = placement or os.environ.get("GANGER_TEST_PLACEMENT", "together")
        self.options = options
        self.holds_back = holds_back
        self.data = folder / "data"
        self.places = paths.places(self.data)
        self.environment: dict[str, str] = {}
        """What its commands, and the daemon that they start, find besides in their environment."""

        self.has_hosts = False
        """Whether hosts will join: then its hub begins warm, too."""

        self.up_code = 0
        """The exit code that a start is to have: 70 if it cannot listen where it should."""
        _made.append(self)

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        """End every process that works for this directory, whatever state it is in."""
        if not warm_starts.end(self.folder):
            with contextlib.suppress(Exception), self.client() as client:
                os.kill(client.info(timeout=2).pid, signal.SIGKILL)
        _end_all(self.is_ours)
        shutil.rmtree(self.places.run, ignore_errors=True)

    def is_ours(self, pid: str) -> bool:
        """Whether this process works for the daemon, or is it."""
        words, environment = _told(pid)
        mark = f"{_MARK}{self.folder}\0".encode()
        return os.fsencode(self.places.run) in words or mark in environment

    def run(self, *words: str, check: bool = True, text: str | None = None) -> Any:
        """Run one command of the command line."""
        command = [*self._limited, *GANGER, "--data", str(self.data), *words]
        environment = {**os.environ, **self.environment, "GANGER_TEST_FOLDER": str(self.folder)}
        if self.has_hosts:
            environment["GANGER_TEST_HUB"] = "1"
        if self._limited or not warm_starts.can_begin(command, environment):
            return subprocess.run(
                command,
                check=check,
                capture_output=True,
                text=True,
                input=text,
                timeout=60,
                env=environment,
            )
        done = warm_starts.run(
            command, folder=self.folder, environment=environment, text=text, seconds=60
        )
        if check:
            done.check_returncode()
        return done

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command of the command line; its output comes through pipes."""
        command = [*GANGER, "--data", str(self.data), *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)

    def up(self) -> None:
        """Start the daemon (again)."""
        if not self.holds_back and not self.data.exists():
            self._hold_nothing_back()
        options = ("--no-rapi", "--placement", self.placement, *self.options)
        for _ in range(_UP_TRIES_MAX):
            done = self.run("up", "--test-hooks", *options, check=False)
            if not _lacks_sockets(done):
                break
        self.begun(done)

    def begun(self, done: subprocess.CompletedProcess[str]) -> None:
        """Check the exit code of a start."""
        assert done.returncode == self.up_code, done

    def _hold_nothing_back(self) -> None:
        """Write the first configuration, as the daemon would, without hold-back."""
        first = config_files.first_configuration(str(uuid.uuid4()), time.time())
        first["cluster"]["predictive_queue"] = {"holds_back": False}
        documents.make_directory(self.data)
        config_files.write(self.places.config, first)

    def client(self) -> Client:
        """A client of it."""
        return Client(self.data)

    def pid(self) -> int:
        """The daemon's process."""
        with self.client() as client:
            return client.info().pid

    def kill(self) -> None:
        """SIGKILL the daemon and wait for its end."""
        pid = self.pid()
        descriptor = process_identity.open_pidfd(pid)
        os.kill(pid, signal.SIGKILL)
        wait_for_end(descriptor)

    def replace_killed(self) -> None:
        """SIGKILL the daemon and start its successor."""
        self.kill()
        self.up()

    def crash(self, component: str, how: Literal["crash", "hang"] = "crash") -> None:
        """Make a component fail, or hang; returns when that was asked for."""
        dealer = Dealer(f"ipc://{self.places.socket}")
        try:
            message = frames.encode(CrashComponent(component=component, how=how), 1)
            for _ in range(30):
                if dealer.send(message):
                    break
                dealer.receive(1.0)
            else:
                raise AssertionError("there is no daemon that could crash")
            while not isinstance(answer := dealer.receive(5.0), bytes) and answer is not None:
                # News of the connection; the listener's own end takes the answer with it.
                if component == "wire_listener":
                    return
            if isinstance(answer, bytes):
                frames.decode(answer, ClientReply)
        finally:
            dealer.close()

    def fork_servers(self) -> list[psutil.Process]:
        """The processes that fork jobs: children of the daemon."""
        return [each for each in self._children() if not _is_authority(each)]

    def authority(self) -> psutil.Process:
        """The process that has lock manager and configuration store for itself."""
        [found] = filter(_is_authority, self._children())
        return found

    def kill_authority(self) -> None:
        """SIGKILL that process and wait for its end; the daemon replaces it."""
        process = self.authority()
        descriptor = process_identity.open_pidfd(process.pid)
        process.kill()
        wait_for_end(descriptor)

    def _children(self) -> list[psutil.Process]:
        return psutil.Process(self.pid()).children()


def _is_authority(process: psutil.Process) -> bool:
    try:
        return any("authority_process" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False


_UP_TRIES_MAX = 30


def _lacks_sockets(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a daemon runs, but its sockets were removed: it looks for them once a second."""
    is_told = done.stdout.startswith("The daemon already runs")
    return is_told and "is not served" in done.stderr and "No such file" in done.stderr


def process_of(client: Client, job_id: int) -> int:
    """The number of the job's process."""
    process_id = client.job(job_id).process_id
    assert process_id is not None
    return process_id


def until(
    client: Client, ids: int | Iterable[int], *statuses: JobStatus, seconds: float = 30.0
) -> None:
    """Wait until each of these jobs has been in one of these states; fail if one ends without."""
    missing = {ids} if isinstance(ids, int) else set(ids)
    for part in client.watch(*missing, log=False, timeout=seconds):
        if isinstance(part, StatusChange) and part.status in statuses:
            missing.discard(part.job_id)
            if not missing:
                return
    raise AssertionError(f"jobs {sorted(missing)} were never {' or '.join(statuses)}")


def end_all_of(folder: Path) -> None:
    """End every process that works for a daemon of this process below the folder."""
    daemons = [daemon for daemon in _made if daemon.folder.is_relative_to(folder)]
    for daemon in daemons:
        daemon.__exit__()
    # Until there is none: one of them may have started another behind our back.
    while _end_all(lambda pid: any(daemon.is_ours(pid) for daemon in daemons)):
        pass


def _end_all(is_meant: Callable[[str], bool]) -> int:
    """End these processes; how many there were."""
    count = 0
    # By their descriptors: the first process of a machine may take seconds to reap them.
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        if not is_meant(pid):
            continue
        with contextlib.suppress(ProcessLookupError):
            descriptor = process_identity.open_pidfd(int(pid))
            # The number may have come to mean another process.
            if is_meant(pid):
                count += 1
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                wait_for_end(descriptor)
            else:
                os.close(descriptor)
    return count


def _told(pid: str) -> tuple[bytes, bytes]:
    """The words and the environment of a process; empty if it has gone."""
    # Not by psutil: it takes a hundredth of a second for all processes.
    return _read(f"/proc/{pid}/cmdline"), _read(f"/proc/{pid}/environ")


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _TOLD_BYTES_MAX)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def wait_until_true(holds: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Look again and again until ``holds`` is true: for what tells nobody when it changes."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"it never came true that {what}"
        time.sleep(0.02)


def stop(pid: int) -> None:
    """Stop a process, and wait until each of its threads stands still: a busy one goes on first."""
    os.kill(pid, signal.SIGSTOP)

    def stands_still() -> bool:
        threads = [psutil.Process(one.id) for one in psutil.Process(pid).threads()]
        return all(thread.status() == psutil.STATUS_STOPPED for thread in threads)

    wait_until_true(stands_still, f"process {pid} stands still")


def wait_for_end(descriptor: int) -> None:
    """Wait until the process of this pidfd has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(20_000), "the process has not ended"
    os.close(descriptor)


def wait_until_gone(*pids: int) -> None:
    """Wait until these processes have ended; some may have gone before."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            wait_for_end(process_identity.open_pidfd(pid))


class Witnesses:
    """Files to which each job appends a line when its operation runs."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder / "witnesses"
        self._folder.mkdir(exist_ok=True)
        self._count = count

    def jobs(self, seconds: float = 0.03) -> list[list[dict[str, Any]]]:
        """Jobs that hold locks in each other's way, a little."""
        return [
            [
                {
                    "OP_ID": "OP_EXEC",
                    "argv": ["sh", "-c", f"echo ran >> {self._folder}/{n}; sleep {seconds}"],
                    "locks": {"node": {"exclusive" if n % 3 == 0 else "shared": [f"n{n % 5}"]}},
                }
            ]
            for n in range(self._count)
        ]

    def counts(self) -> dict[int, int]:
        """How often each operation ran."""
        return {
            n: len(path.read_text().splitlines()) if (path := self._folder / str(n)).exists() else 0
            for n in range(self._count)
        }
