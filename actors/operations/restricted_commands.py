"""The call ``restricted_command``: programs that a host lets others run by name alone.

The host's own settings name the directory; its owner and mode, and those of the program, must keep
others from changing it. Why a command is refused stands in the daemon's log on the host; who calls
learns nothing but that it was, and ten seconds later. Source: Ganeti's ``RunRestrictedCmd``; the
texts are Ganeti's.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import subprocess
import time
from pathlib import Path
from typing import Final

import msgspec

from ...storage.disk import documents, paths
from ...storage.nodes import task_settings
from ...storage.opcodes import OperationError

REFUSED_SECONDS: Final = 10.0
"""How long the answer to a command that is refused takes."""

_LOCK_SECONDS: Final = 8.0
"""How long a command waits for others to be checked: less than a refusal takes."""

_LOOK_SECONDS: Final = 0.1
_MODE_MAX: Final = 0o755
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]+\Z")


class _RefusedError(Exception):
    """Why a command is refused: for the log of this host alone."""


def run(name: str, data: Path) -> str:
    """Run the command: what it printed. `OperationError`: it is refused, or has failed."""
    places = paths.Places(data, data)
    folder = task_settings.read(places.node_settings).restricted_commands
    if folder is None:
        raise _failure("Restricted commands disabled at configure time")
    try:
        process = _begun(name, folder, data)
    except (_RefusedError, OSError) as error:
        _note(places, name, str(error))
        time.sleep(REFUSED_SECONDS)
        raise _failure(f"Executing command '{name}' failed") from None
    stdout, stderr = process.communicate()
    output = (stdout + stderr).decode(errors="replace")
    if process.returncode:
        how = f"exited with exit code {process.returncode}"
        if process.returncode < 0:
            how = f"terminated by signal {-process.returncode}"
        raise _failure(f"Restricted command '{name}' failed: {how}; output: {output}")
    return output


def _begun(name: str, folder: str, data: Path) -> subprocess.Popen[bytes]:
    """The process of the command, if all is as it must be. One is checked at a time."""
    lock = os.open(data / "restricted-commands.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(lock)
        program = checked(name, folder)
        return subprocess.Popen(
            [program],
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    finally:
        os.close(lock)


def _lock(descriptor: int) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise _RefusedError("other commands are still being checked") from None
            # The kernel tells nobody when a lock is free, but who waits for it without a limit.
            time.sleep(_LOOK_SECONDS)
        else:
            return


def checked(name: str, folder: str) -> str:
    """The path of the program of this name. Raises why it may not run."""
    found = _looked_at(Path(folder))
    if not stat.S_ISDIR(found.st_mode):
        raise _RefusedError(f"Path '{folder}' is not a directory")
    if not name.strip():
        raise _RefusedError("Missing command name")
    if "/" in name:
        raise _RefusedError("Invalid command name")
    if not _NAME.match(name):
        raise _RefusedError("Command name contains forbidden characters")
    program = Path(folder, name)
    _looked_at(program)
    if not (program.is_file() and os.access(program, os.X_OK)):
        raise _RefusedError(f"access(2) thinks '{program}' can't be executed")
    return os.fspath(program)


def _looked_at(path: Path) -> os.stat_result:
    try:
        found = path.stat()
    except OSError as error:
        raise _RefusedError(f"Can't stat(2) '{path}': {error}") from error
    if stat.S_IMODE(found.st_mode) & ~_MODE_MAX:
        raise _RefusedError(f"Permissions on '{path}' are too permissive")
    # Ganeti's daemon is always root's.
    if (found.st_uid, found.st_gid) not in {(0, 0), (os.geteuid(), os.getegid())}:
        raise _RefusedError(f"'{path}' is not owned by {os.geteuid()}:{os.getegid()}")
    return found


def _note(places: paths.Places, name: str, reason: str) -> None:
    """Tell the operator of this host why."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = {
        "event": "a restricted command is refused",
        "command": name,
        "reason": reason,
        "level": "error",
        "time": when,
    }
    with documents.storage_errors(places.log):
        descriptor = documents.open_to_append(places.log)
        try:
            os.write(descriptor, msgspec.json.encode(line) + b"\n")
        finally:
            os.close(descriptor)


def _failure(text: str) -> OperationError:
    return OperationError("OpExecError", text)
