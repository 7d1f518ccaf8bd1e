"""A client of WConfD's socket, as plain as can be, and programs that own locks there."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
from typing import TYPE_CHECKING, Any, Self

from tests.programs import Program

from ganger.storage.alive import lock_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.harness import Daemon

ClientId = list[Any]
"""A job id or a name, a lock file, a process id."""

OWNER = """
import fcntl, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
held = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.lockf(held, fcntl.LOCK_EX)
print("holds its lock file", flush=True)
while True:
    print(signal.Signals(signal.sigwait({signal.SIGHUP})).name, flush=True)
"""


class Wconfd:
    """One connection."""

    def __init__(self, path: Path) -> None:
        self._end = socket.socket(socket.AF_UNIX)
        self._end.settimeout(30)
        self._end.connect(str(path))
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._end.close()

    def send(self, *documents: bytes) -> None:
        """Send documents at once."""
        self._end.sendall(b"".join(document + b"\x03" for document in documents))

    def reply(self) -> Any:
        """The next document; `EOFError` if the daemon has closed the connection."""
        while b"\x03" not in self._read:
            data = self._end.recv(65_536)
            if not data:
                raise EOFError
            self._read += data
        document, _, self._read = self._read.partition(b"\x03")
        return json.loads(document)

    def call(self, method: str, *args: Any) -> Any:
        """What the method gives."""
        self.send(call(method, *args))
        reply = self.reply()
        assert reply.keys() == {"success", "result"}
        assert reply["success"] is True, reply
        return reply["result"]

    def refused(self, method: str, *args: Any) -> list[Any]:
        """The error that the method gives: its name and its arguments."""
        self.send(call(method, *args))
        reply = self.reply()
        assert reply["success"] is False, reply
        found: list[Any] = reply["result"]
        return found


def call(method: str, *args: Any) -> bytes:
    """The document of a call."""
    return json.dumps({"method": method, "args": args}).encode()


_owners = itertools.count(1)
"""No two owners of a daemon have the same file: it remembers who has lost its locks."""


class Owners:
    """Owners of locks whose lock files this process holds, and programs that are owners."""

    def __init__(self, daemon: Daemon) -> None:
        self._folder = daemon.places.lock_files
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def own(self, identifier: int | str = "test") -> ClientId:
        """An owner that lives as long as the test."""
        held = lock_files.create(self._folder, self._name())
        self._stack.callback(held.remove)
        return [identifier, held.path, lock_files.holder(held.path)]

    def program(self, identifier: int | str = "program") -> tuple[ClientId, Program]:
        """An owner that is a program; it prints SIGHUP whenever it gets one."""
        path = self._folder / self._name()
        program = self._stack.enter_context(Program(OWNER, path))
        return [identifier, str(path), program.pid], program

    def _name(self) -> str:
        return f"wconfd-owner-{next(_owners)}"


def with_names(value: Any, owners: dict[int, ClientId]) -> Any:
    """``value`` with these owners in place of those of the same job ids."""
    if isinstance(value, list):
        if len(value) == 3 and isinstance(value[1], str) and value[0] in owners:
            return owners[value[0]]
        return [with_names(one, owners) for one in value]
    return value


@contextlib.contextmanager
def connected(daemon: Daemon) -> Iterator[Wconfd]:
    """A connection to the daemon."""
    with Wconfd(daemon.places.wconfd_socket) as wconfd:
        yield wconfd
