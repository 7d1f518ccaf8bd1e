"""The fork servers, as their parent has them: one process for each template."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from ...storage.disk import descriptors, paths
from ...storage.opcodes import catalogue
from ...transport import messages
from ..processes import channels, fork_protocol, machine

if TYPE_CHECKING:
    from ..runtime.component import Runtime


class ForkServers:
    """The fork servers that run, by template. The executor decides what follows from their ends."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._running: dict[str, tuple[subprocess.Popen[bytes], channels.End]] = {}

    def __contains__(self, template: str) -> bool:
        return template in self._running

    def start(self, template: str) -> None:
        """Start a server; `OSError` if the system has no process or descriptors for it."""
        host = self._runtime.host
        process, ours = fork_server(template, host.places)
        if (limit := host.descriptors_before) is not None:
            # Jobs get the limit that the daemon was started with: some commands use the old
            # `select`, others close all descriptors that they might have.
            descriptors.set_limit(limit, process.pid)
        self._running[template] = (process, ours)
        self._runtime.watch(ours.fileno())
        self._runtime.log.info("fork server started", template=template, pid=process.pid)

    def find(self, descriptor: int) -> str | None:
        """The template of the server at the other end of ``descriptor``."""
        ends = ((template, end.fileno()) for template, (_, end) in self._running.items())
        return next((template for template, found in ends if found == descriptor), None)

    def receive(self, template: str) -> tuple[int, int, int] | None:
        """The next reply of a server; None if it has ended."""
        return fork_protocol.receive_reply(self._running[template][1])

    def request(self, template: str, job_id: int, channel: int) -> None:
        """Ask for a process; `OSError` if the server has died."""
        fork_protocol.request(self._running[template][1], job_id, channel)

    def ask_status(self, template: str, pid: int) -> bool:
        """Ask for the exit status of a process; False if its server has died."""
        if template not in self._running:
            return False
        try:
            fork_protocol.ask_status(self._running[template][1], pid)
        except OSError:
            return False
        return True

    def end(self, template: str) -> int:
        """End a server; its status."""
        process, end = self._running.pop(template)
        self._runtime.forget(end.fileno())
        end.close()
        process.kill()
        return process.wait()

    def close(self) -> None:
        """End all servers; running jobs go on."""
        for process, end in self._running.values():
            end.close()
            process.kill()
            process.wait()

    def report(self) -> messages.ExecutorReport:
        """How much memory the daemon and the servers use."""
        pids = {"daemon": os.getpid(), **self._runtime.host.processes}
        for template, (process, _) in self._running.items():
            pids[f"fork_server:{template}"] = process.pid
        found = {name: machine.resident_bytes(pid) for name, pid in pids.items()}
        memory = {name: size for name, size in found.items() if size is not None}
        return messages.ExecutorReport(pid=os.getpid(), memory=memory)


def fork_server(
    template: str, places: paths.Places
) -> tuple[subprocess.Popen[bytes], channels.End]:
    """A new fork server, and this end of the socket pair to it."""
    ours, theirs = channels.pair()
    command = [sys.executable, "-P", "-m", "ganger.actors.execution.template", template]
    folders = (places.lock_files, places.dry_runs)
    families = " ".join(family.__name__ for family in catalogue.families())
    with contextlib.closing(theirs):
        try:
            process = subprocess.Popen(
                [*command, str(theirs.fileno()), *map(os.fspath, folders), families],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd="/",
            )
        except OSError:
            ours.close()
            raise
    return process, ours
