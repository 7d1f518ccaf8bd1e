"""What happens to a host beside deaths: a wrong clock, a copied directory, all processes gone."""

from __future__ import annotations

import contextlib
import mmap
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

import psutil
from tests.faults.harness import wait_until_gone, wait_until_true

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.harness import Daemon
    from tests.system.hosts import Host

    from ganger import Client
    from ganger.transport.messages import NodeState

_SITE = """
import mmap, os, struct, time
if name := os.environ.get("GANGER_TEST_CLOCK"):
    with open(name, "rb") as file:
        offset = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + struct.unpack("d", offset)[0]
    time.time_ns = lambda: nanoseconds() + int(struct.unpack("d", offset)[0] * 1e9)
"""


class WrongClock:
    """The wall clock of all processes of Ganger that have this ``environment``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_SITE)
        place = folder / "offset"
        place.write_bytes(bytes(8))
        with place.open("r+b") as file:
            self._offset = mmap.mmap(file.fileno(), 8)
        self.environment = {"PYTHONPATH": str(folder), "GANGER_TEST_CLOCK": str(place)}

    def set(self, seconds: float) -> None:
        """From now on it is wrong by so much, for those who run already, too."""
        self._offset[:] = struct.pack("d", seconds)


def copy_directory(source: Path, target: Path) -> None:
    """Copy a data directory, also while tasks write into it."""
    shutil.rmtree(target, ignore_errors=True)
    # What goes meanwhile is missing in the copy.
    subprocess.run(["cp", "-a", source, target], capture_output=True, check=False)


def power_off(host: Host, mark: str) -> None:
    """End every process of the host; its commands have ``mark`` in their words."""
    commands = _with_children(mark)
    # First who could start something, and then what it has started meanwhile.
    host.__exit__()
    while commands:
        for one in commands:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        wait_until_gone(*(one.pid for one in commands))
        commands = _with_children(mark)


def _with_children(mark: str) -> list[psutil.Process]:
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            words = one.cmdline()
            if words[:2] == ["sh", "-c"] and any(mark in word for word in words):
                found += [one, *one.children(recursive=True)]
    return found


def node(client: Client, name: str) -> NodeState:
    """What the master knows of it."""
    [found] = [one for one in client.nodes().nodes if one.name == name]
    return found


def take_back(master: Daemon, host: Host) -> bool:
    """Wait until the host is a node again; whether it had to be invited for that."""
    with master.client() as client:
        wait_until_true(
            lambda: (found := node(client, host.name)).is_there or bool(found.problem),
            f"{host.name} is there, or refused",
        )
        if node(client, host.name).is_there:
            return False
        _, *line = master.run("node", "invite", host.name).stdout.split()
        host.begun(host.run(*line, check=False))
        wait_until_true(lambda: node(client, host.name).is_there, f"{host.name} is there")
        # Its processes have ended, or live on in a directory that the master does not know.
        wait_until_true(lambda: not node(client, host.name).open_calls, "no job waits for it")
        master.run("node", "forget-tasks", host.name)
        return True
