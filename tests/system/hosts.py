"""A master and hosts on this machine that have joined it, each with a data directory of its own."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.faults.harness import Daemon, wait_until_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ganger import Client


class Host(Daemon):
    """The node daemon of a host."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder)
        self.name = name

    def join(self, master: Daemon, endpoint: str | None) -> None:
        """Join, and start the daemon. ``endpoint``: where the master listens; None: as it does."""
        words = () if endpoint is None else ("--listen", endpoint, "--announce", endpoint)
        _, *line = master.run("node", "invite", self.name, *words).stdout.split()
        self.run(*line)

    def up(self) -> None:
        """Start the node daemon again."""
        self.begun(self.run("node", "up", check=False))


@contextmanager
def joined_host(
    master: Daemon, folder: Path, name: str, *, is_first: bool = True
) -> Iterator[Host]:
    """A host that has joined under this name; its daemon ends behind it.

    ``is_first``: the master listens for hosts at a new endpoint, which it would leave otherwise.
    """
    host = Host(folder, name)
    try:
        host.join(master, free_endpoint() if is_first else None)
        yield host
    finally:
        host.__exit__()


def running_tasks(host: Host) -> int:
    """How many tasks run on the host, as its daemon says."""
    with host.client() as there:
        return len(list(there.jobs(statuses=["running"])))


def free_endpoint() -> str:
    """An endpoint at which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def until_there(client: Client, name: str, *, is_there: bool = True) -> None:
    """Wait until the hub has the connection of this node, or has it no more."""
    wait_until_true(_is_there(client, name, is_there=is_there), f"{name} there: {is_there}")


def _is_there(client: Client, name: str, *, is_there: bool) -> Callable[[], bool]:
    def look() -> bool:
        return [one.is_there for one in client.nodes().nodes if one.name == name] == [is_there]

    return look
