"""A process that is warm and single-threaded, and forks one child for each job.

How it works. The daemon executes it afresh (``python -m ganger.actors.execution.template``), with
one end of a socket pair. It imports what a job needs, freezes the collector, and keeps a
few spare children, each waiting on a socket pair of its own. A request names a job and
carries the job's channel; a spare gets both, and the daemon the spare's pid and pidfd.

Two templates: ``lean`` knows the built-in operations and imports nothing that slows a fork
(no threads, logging, sockets of libraries); ``full`` has also imported the users' opcodes.

A spare holds no descriptor of any other child: each one closes what it inherited, so that a
closed channel is noticed at once. When the daemon goes away the server and its spares end;
children that have a job go on.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import select
import signal
from collections.abc import Sequence
from typing import NamedTuple

from ...storage import settings
from ...storage.alive import lock_files, process_identity
from ...storage.opcodes import catalogue
from ..job import process
from ..job.daemon_link import DaemonLink
from ..processes import channels, control_groups, fork_protocol
from . import prewarming

_DESCRIPTORS_END = 2**31 - 1


class _Spare(NamedTuple):
    """A child that waits for a job at the other end of ``end``."""

    end: channels.End
    pid: int
    pidfd: int


class ForkServer:
    """The server's loop. ``daemon`` is its end of the socket pair to the daemon."""

    def __init__(self, daemon: channels.End, lock_files_folder: str, dry_runs: str) -> None:
        self._daemon = daemon
        self._lock_files = lock_files_folder
        self._dry_runs = dry_runs
        self._spares: list[_Spare] = []
        open_now = _open_descriptors()
        self._ranges = _ranges_without(open_now - {daemon.fileno()})
        self._highest = max(open_now)
        self._children: dict[int, tuple[int, int]] = {}
        """By pidfd: the pid of a child, and the number of its spare lock file."""
        self._pid = os.getpid()
        self._free_numbers: list[int] = []
        self._numbers = 0
        self._ended: dict[int, int] = {}
        self._poll = select.poll()
        self._poll.register(daemon.fileno(), select.POLLIN)

    def learn(self, times: int) -> None:
        """Serve dry runs in this process as children serve jobs. Raises `OSError`."""
        with prewarming.PreparedRuns(self._dry_runs, times) as runs:
            folder, self._lock_files = self._lock_files, runs.folder
            for channel in runs.ends:
                end = _asked_for(channel)
                self._serve_request(end, prewarming.NUMBER)
                end.detach()
            self._lock_files = folder

    def serve(self) -> None:
        """Serve until the daemon closes its end."""
        while True:
            if len(self._spares) <= settings.SPARE_CHILDREN_LEFT:
                self._make_spares()
            for descriptor, _ in self._poll.poll():
                if descriptor == self._daemon.fileno():
                    if not self._take_request():
                        return
                else:
                    self._reap(descriptor)

    def _take_request(self) -> bool:
        try:
            received = fork_protocol.receive_request(self._daemon)
        except ConnectionError:
            return False
        if received is None:
            return False
        job_id, channel = received
        if (pid := fork_protocol.asked_status(job_id)) is not None:
            fork_protocol.reply_status(self._daemon, pid, self._status_of(pid))
            return True
        self._highest = max(self._highest, channel)
        if not self._spares:
            self._fork(1)
        spare = self._spares.pop(0)
        try:
            fork_protocol.request(spare.end, job_id, channel)
        except OSError:
            # The spare has died: `_reap` takes it, and a new one gets the job.
            spare.end.close()
            self._fork(1)
            spare = self._spares.pop()
            fork_protocol.request(spare.end, job_id, channel)
        fork_protocol.reply(self._daemon, job_id, spare.pid, spare.pidfd)
        os.close(channel)
        spare.end.close()
        return True

    def _make_spares(self) -> None:
        self._fork(settings.SPARE_CHILDREN - len(self._spares))

    def _fork(self, count: int) -> None:
        """Make this many spares, or fewer; `OSError` if there is none then.

        What else they need is done before the first fork and after the last: the kernel copies each
        page into which the server writes between two forks.
        """
        prepared, refusal = self._prepare(count)
        pids: list[int] = []
        try:
            for _, theirs, number in prepared:
                pid = os.fork()
                if pid == 0:
                    self._be_child(theirs, number)
                pids.append(pid)
        except OSError as error:
            refusal = error
        for place, (ours, theirs, number) in enumerate(prepared):
            theirs.close()
            try:
                if place < len(pids):
                    self._take_in(ours, pids[place], number)
                    continue
            except OSError as error:
                refusal = error
            ours.close()
            self._free_numbers.append(number)
        if refusal is not None and not self._spares:
            raise refusal
        # No more processes or descriptors for now: work with the spares at hand.

    def _prepare(
        self, count: int
    ) -> tuple[list[tuple[channels.End, channels.End, int]], OSError | None]:
        """Both ends and the number of a spare lock file for each; fewer, and why, if need be."""
        prepared: list[tuple[channels.End, channels.End, int]] = []
        for _ in range(count):
            try:
                ours, theirs = channels.pair()
            except OSError as error:
                return prepared, error
            self._highest = max(self._highest, ours.fileno(), theirs.fileno())
            prepared.append((ours, theirs, self._take_number()))
        return prepared, None

    def _take_in(self, ours: channels.End, pid: int, number: int) -> None:
        """Keep a new child as a spare. `OSError` if it cannot be watched: then it has ended."""
        # Opened before `_reap` can run, so the pid is still the child's.
        try:
            pidfd = process_identity.open_pidfd(pid)
        except OSError:
            # The child ends when its pair is closed.
            ours.close()
            os.waitpid(pid, 0)
            raise
        self._highest = max(self._highest, pidfd)
        self._children[pidfd] = pid, number
        self._poll.register(pidfd, select.POLLIN)
        self._spares.append(_Spare(ours, pid, pidfd))

    def _take_number(self) -> int:
        """A number that no living child has; the child reuses its predecessor's spare lock file."""
        if self._free_numbers:
            return self._free_numbers.pop()
        self._numbers += 1
        return self._numbers

    def _be_child(self, end: channels.End, number: int) -> None:
        # Every path ends in os._exit: no code of the server may run in the child.
        status = 70
        try:
            self._live(end, number)
            status = 0
        except BaseException:  # noqa: BLE001 - reported, and the process ends either way
            _report()
        finally:
            os._exit(status)

    def _live(self, end: channels.End, number: int) -> None:
        self._close_all_but(end.fileno())
        os.setsid()
        self._serve_request(end, number)

    def _close_all_but(self, kept: int) -> None:
        """In a child: close the server's descriptors, but not those of users' modules.

        Up to the highest number in use: some systems close one number after the other.
        """
        end = self._highest + 1
        for low, high in self._ranges:
            if low <= kept < high:
                os.closerange(low, kept)
                os.closerange(kept + 1, min(high, end))
            else:
                os.closerange(low, min(high, end))

    def _serve_request(self, end: channels.End, number: int) -> None:
        """In a spare child: wait for a job, then run it. Returns if the server has ended."""
        identity = process_identity.own()
        received = fork_protocol.receive_request(end)
        os.close(end.fileno())
        if received is not None:
            job_id, descriptor = received
            channel = channels.Channel(channels.end_of(descriptor))
            spare = lock_files.spare_path(self._lock_files, self._pid, number)
            process.run_process(
                job_id, DaemonLink(channel), self._lock_files, spare=spare, identity=identity
            )

    def _status_of(self, pid: int) -> int:
        """The status with which a child has ended; reaps it first if need be."""
        for pidfd, (child, _) in list(self._children.items()):
            if child == pid and _has_ended(pidfd):
                self._reap(pidfd)
        return self._ended.get(pid, fork_protocol.UNKNOWN)

    def _reap(self, pidfd: int) -> None:
        if pidfd not in self._children:
            # `_status_of` has reaped it in the same round.
            return
        self._poll.unregister(pidfd)
        pid, number = self._children.pop(pidfd)
        self._free_numbers.append(number)
        self._spares = [spare for spare in self._spares if spare.pidfd != pidfd]
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._ended.pop(pid, None)
        self._ended[pid] = status
        if len(self._ended) > settings.ENDED_CHILDREN_KEPT:
            del self._ended[next(iter(self._ended))]


def _asked_for(channel: channels.End) -> channels.End:
    """The end at which a spare child is asked to serve the job of ``channel``, which is closed."""
    ours, theirs = channels.pair()
    fork_protocol.request(ours, 0, channel.fileno())
    ours.close()
    channel.close()
    return theirs


def _has_ended(pidfd: int) -> bool:
    return os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _open_descriptors() -> set[int]:
    # The list holds its own descriptor, which is closed by now.
    listed = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - no pathlib here
    return {descriptor for descriptor in listed if _is_open(descriptor)}


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _ranges_without(kept: set[int]) -> list[tuple[int, int]]:
    """All descriptors but these, as ranges: the first number, and the one after the last."""
    bounds = [-1, *sorted(kept), _DESCRIPTORS_END]
    return [(low + 1, high) for low, high in itertools.pairwise(bounds) if low + 1 < high]


def _report() -> None:
    # Imported here: only a failure needs it.
    import traceback  # noqa: PLC0415

    os.write(2, traceback.format_exc().encode())


def run(
    template: str,
    descriptor: int,
    folders: tuple[str, str],
    *,
    families: Sequence[str],
) -> None:
    """Be a fork server until the daemon closes its end of the socket pair, ``descriptor``.

    ``folders``: for the lock files of jobs' processes, and for the files of dry runs. ``families``
    are the modules of opcodes (`catalogue.Family`).
    """
    lock_files_folder, dry_runs = folders
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    catalogue.use_families([importlib.import_module(family) for family in families])
    if template == "full":
        catalogue.load_user_opcodes()
    prewarming.clear(dry_runs)
    lock_files.remove_spares(lock_files_folder)
    # Cached here once, so that children inherit the answers.
    process_identity.boot()
    control_groups.places()
    server = ForkServer(channels.end_of(descriptor), lock_files_folder, dry_runs)
    server.learn(prewarming.DRY_RUNS)
    gc.collect()
    gc.freeze()
    gc.disable()
    server.serve()
    os._exit(0)
