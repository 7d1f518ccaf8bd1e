"""Redis and PostgreSQL, started for one measurement.

They listen on loopback at a free port, and ask for a password that is made anew each time.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .side import until

if TYPE_CHECKING:
    from .processes import Processes


class MissingError(Exception):
    """A program or a library that a side needs is not installed."""


def beside_python(program: str) -> str:
    """The path of a program that was installed into this environment."""
    return str(Path(sys.executable).parent / program)


def program_version(*command: str) -> str:
    """The first line that a program prints about its version."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def needed(program: str) -> str:
    """The path of a program; MissingError if it is not installed."""
    found = shutil.which(program)
    if found is None:
        raise MissingError(f"{program} is not installed")
    return found


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether something listens on the port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def start_redis(processes: Processes, folder: Path) -> tuple[str, str]:
    """Start Redis, which flushes its file before each answer; return its address and version."""
    program = needed("redis-server")
    port, password = free_port(), secrets.token_hex(16)
    (folder / "redis").mkdir()
    lines = (
        "bind 127.0.0.1",
        f"port {port}",
        f"requirepass {password}",
        "appendonly yes",
        "appendfsync always",
        'save ""',
        f"dir {folder / 'redis'}",
    )
    processes.start(program, "-", name="redis", given="\n".join(lines).encode())
    until(lambda: answers(port), "redis-server answers")
    version = program_version(program, "--version").split("v=")[1].split()[0]
    return f"redis://:{password}@127.0.0.1:{port}/0", f"Redis {version}"


def start_postgresql(processes: Processes, folder: Path) -> tuple[str, str]:
    """Make and start a PostgreSQL cluster of its own; return its address and version.

    PostgreSQL refuses to run as root, so then it runs as ``postgres`` or ``nobody``.
    """
    initdb, postgres = _postgresql_program("initdb"), _postgresql_program("postgres")
    port, password = free_port(), secrets.token_hex(16)
    data, secret = folder / "postgresql", folder / "password"
    data.mkdir()
    secret.write_text(password)
    user = _unprivileged_user() if os.geteuid() == 0 else None
    if user is not None:
        for path in (data, secret):
            shutil.chown(path, user)
    options = ("--username=bench", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync")
    making = processes.start(initdb, "-D", str(data), *options, name="initdb", user=user)
    if making.wait(60):
        last = (folder / "initdb.log").read_text().splitlines()[-1:]
        raise RuntimeError(f"initdb failed: {''.join(last)}")
    where = ("-h", "127.0.0.1", "-p", str(port), "-k", "")
    processes.start(postgres, "-D", str(data), *where, name="postgresql", user=user)
    until(lambda: answers(port), "PostgreSQL answers")
    version = program_version(postgres, "--version").split()[2]
    return f"postgresql://bench:{password}@127.0.0.1:{port}/postgres", f"PostgreSQL {version}"


def _postgresql_program(name: str) -> str:
    """The newest program that Debian has put beside the others, or the one of the path."""
    found = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4])
    )
    return str(found[-1]) if found else needed(name)


def _unprivileged_user() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
