"""A process that is warm and single-threaded, and forks one child for each job.

How it works. The daemon executes it afresh (``python -m ganger.actors.fork_server``), with
one end of a socket pair. It imports what a job needs, freezes the collector, and keeps a
few spare children, each waiting on a socket pair of its own. A request names a job and
carries the job's channel; a spare gets both, and the daemon the spare's pid and pidfd.

Two templates: ``lean`` knows the built-in operations and imports nothing that slows a fork
(no threads, logging, sockets of libraries); ``full`` has also imported the users' opcodes.

A spare holds no descriptor of any other child: each one closes what it inherited, so that
the end of a channel is seen at once. When the daemon goes away the server and its spares
end; children that have been given a job go on.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from typing import NamedTuple

from ..storage import settings
from . import channels, fork_requests, job, warming


class _Spare(NamedTuple):
    """A child that waits for a job at the other end of ``end``."""

    end: socket.socket
    pid: int
    pidfd: int


class ForkServer:
    """The server's loop. ``daemon`` is its end of the socket pair to the daemon."""

    def __init__(self, daemon: socket.socket, lock_files: str, spare_count: int) -> None:
        self._daemon = daemon
        self._daemon_descriptor = daemon.fileno()
        self._lock_files = lock_files
        self._spare_count = spare_count
        self._spares: list[_Spare] = []
        self._children: dict[int, int] = {}
        self._poll = select.poll()
        self._poll.register(daemon.fileno(), select.POLLIN)

    def serve(self) -> None:
        """Serve until the daemon closes its end."""
        while True:
            while len(self._spares) < self._spare_count:
                self._make_spare()
                if self._poll.poll(0):
                    break
            for descriptor, _ in self._poll.poll():
                if descriptor == self._daemon.fileno():
                    if not self._take_request():
                        return
                else:
                    self._reap(descriptor)

    def _take_request(self) -> bool:
        try:
            received = fork_requests.receive_request(self._daemon)
        except ConnectionError:
            return False
        if received is None:
            return False
        job_id, channel = received
        if not self._spares:
            self._make_spare()
        spare = self._spares.pop(0)
        try:
            fork_requests.request(spare.end, job_id, channel)
        except OSError:
            # The spare died while it waited; its death is reaped, a new one serves.
            spare.end.close()
            self._make_spare()
            spare = self._spares.pop()
            fork_requests.request(spare.end, job_id, channel)
        fork_requests.reply(self._daemon, job_id, spare.pid, spare.pidfd)
        os.close(channel)
        spare.end.close()
        return True

    def _make_spare(self) -> None:
        ours, theirs = channels.pair()
        pid = os.fork()
        if pid == 0:
            self._be_child(theirs, ours)
        theirs.close()
        # The pidfd is opened before the child can be reaped, so it cannot name another.
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = pid
        self._poll.register(pidfd, select.POLLIN)
        self._spares.append(_Spare(ours, pid, pidfd))

    def _be_child(self, end: socket.socket, ours: socket.socket) -> None:
        # Leaves by os._exit on every path: nothing of the server may run in the child.
        status = 70
        try:
            # By number: each object that is touched costs a page of memory of its own.
            os.close(ours.fileno())
            os.close(self._daemon_descriptor)
            for spare in self._spares:
                os.close(spare.end.fileno())
            for pidfd in self._children:
                os.close(pidfd)
            os.setsid()
            job.serve_request(end, self._lock_files)
            status = 0
        except BaseException:  # noqa: BLE001 - reported, and the process ends either way
            _report()
        finally:
            os._exit(status)

    def _reap(self, pidfd: int) -> None:
        self._poll.unregister(pidfd)
        pid = self._children.pop(pidfd)
        self._spares = [spare for spare in self._spares if spare.pidfd != pidfd]
        os.close(pidfd)
        os.waitpid(pid, 0)


def _report() -> None:
    # traceback is imported only here: it is not needed while all goes well.
    import traceback  # noqa: PLC0415

    os.write(2, traceback.format_exc().encode())


def main() -> None:
    """Run a fork server: ``TEMPLATE DESCRIPTOR LOCK_FILE_DIRECTORY``."""
    template, descriptor, lock_files = sys.argv[1:4]
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    if template == "full":
        job.load_user_opcodes()
    warming.rehearse(lock_files)
    gc.collect()
    gc.freeze()
    gc.disable()
    daemon = socket.socket(fileno=int(descriptor))
    ForkServer(daemon, lock_files, settings.SPARE_CHILDREN).serve()
    os._exit(0)


if __name__ == "__main__":
    main()
