"""Network namespaces for the machines of `demo_hosts`: a bridge, and a cable to each host.

The demonstration becomes a program in namespaces of its own (``unshare``), where it may make more,
which go with its end. Without the right to that, or the tools, all machines share the loopback
address.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from typing import NoReturn

MASTER, PORT = "10.9.0.1", 7611
ENTERED = "GANGER_DEMO_NETWORK"
"""In the environment of a demonstration that is in namespaces of its own."""

_TRIAL = "mount -t tmpfs none /run && ip netns add t && ip link add v-1 type veth peer name v-2"
_TOOLS = ("ip", "nsenter", "unshare")


def why_not() -> str:
    """Why there can be no namespaces here; empty if they are allowed."""
    for tool in _TOOLS:
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    tried = subprocess.run(
        [*_unshare(), "sh", "-c", _TRIAL], capture_output=True, text=True, check=False
    )
    return tried.stderr.strip().partition("\n")[0] if tried.returncode else ""


def enter() -> NoReturn:
    """Go on as the same program, with the same arguments, in namespaces of its own."""
    words = [*_unshare(), sys.executable, *sys.orig_argv[1:]]
    os.execvpe(words[0], words, {**os.environ, ENTERED: "1"})


def _unshare() -> list[str]:
    as_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *as_user, "--net", "--mount", "--propagation", "private"]


class Loopback:
    """All machines share one address; a host is cut off by stopping its daemon."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"

    def inside(self, _name: str) -> list[str]:
        """The words that have a command run on this machine."""
        return []


class Cables(Loopback):
    """Each host has a network namespace, an address, and a cable to the master's bridge."""

    def __init__(self, hosts: Iterable[str]) -> None:
        """Lay them. Raises `subprocess.CalledProcessError`."""
        self.endpoint = f"tcp://{MASTER}:{PORT}"
        self._hosts = frozenset(hosts)
        # Names of namespaces are files there.
        _run("mount -t tmpfs none /run")
        _run("ip link set lo up")
        _run("ip link add bridge type bridge")
        _run(f"ip address add {MASTER}/24 dev bridge")
        _run("ip link set bridge up")
        for number, name in enumerate(sorted(self._hosts), start=2):
            _run(f"ip netns add {name}")
            _run(f"ip link add v-{name} type veth peer name eth0 netns {name}")
            _run(f"ip link set v-{name} master bridge up")
            for words in (
                "ip link set lo up",
                f"ip address add 10.9.0.{number}/24 dev eth0",
                "ip link set eth0 up",
            ):
                _run(" ".join([*self.inside(name), words]))

    def inside(self, name: str) -> list[str]:
        """The words that have a command run on this machine."""
        return ["nsenter", f"--net=/run/netns/{name}"] if name in self._hosts else []

    def cut(self, name: str) -> None:
        """Pull the host's cable: all packets are lost, and nobody is told."""
        _run(f"ip link set v-{name} down")

    def mend(self, name: str) -> None:
        """Put it back."""
        _run(f"ip link set v-{name} up")


def _run(line: str) -> None:
    subprocess.run(line.split(), check=True)
