"""What a host lets tasks do: ``node.toml`` in the data directory of its node daemon.

    [tasks]
    users = ["deploy", "www-data"]     # besides the daemon's own user; none without this line
    commands = ["/usr/bin/*"]          # programs, after a search of PATH; all without this line
    directories = ["/srv/*"]           # where commands may begin; all without this line

A ``*`` stands for any text. Without the file, a task may run any command as the daemon's own user.
"""

from __future__ import annotations

import fnmatch
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import errors
from ..disk import documents

if TYPE_CHECKING:
    from pathlib import Path

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class TaskSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What tasks may do."""

    users: Sequence[str] = ()
    commands: Sequence[str] = ("*",)
    directories: Sequence[str] = ("*",)

    def __post_init__(self) -> None:
        for name in ("commands", "directories"):
            for pattern in getattr(self, name):
                if not pattern.startswith(("/", "*")):
                    raise ValueError(f"{name}: expected absolute paths, got {pattern!r}")

    def check(self, opcode: Mapping[str, Any]) -> None:
        """Raise `NotAllowedError` if this opcode of a task is not allowed."""
        user = opcode.get("user")
        if user is not None and user not in self.users:
            raise _not_allowed(f"no command may run as user {user!r}", "users")
        directory = opcode.get("cwd") or "/"
        if not _matches(str(directory), self.directories):
            raise _not_allowed(f"no command may begin in {directory}", "directories")
        argv = opcode.get("argv")
        if isinstance(argv, list | tuple) and argv and "*" not in self.commands:
            program = str(argv[0])
            variables = opcode.get("env")
            path = variables.get("PATH", _PATH) if isinstance(variables, Mapping) else _PATH
            found = program if program.startswith("/") else shutil.which(program, path=str(path))
            if found is None or not _matches(found, self.commands):
                raise _not_allowed(f"{found or program} may not run", "commands")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tasks: TaskSettings = TaskSettings()


def read(path: Path) -> TaskSettings:
    """The settings in this file; `DataDirectoryError` that names what is wrong in it."""
    data = documents.read(path)
    if data is None:
        return TaskSettings()
    try:
        return msgspec.convert(tomllib.loads(data.decode()), _File).tasks
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise errors.DataDirectoryError(f"{path}: {error}") from error


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def _not_allowed(what: str, setting: str) -> errors.NotAllowedError:
    return errors.NotAllowedError(f"{what}: the host's node.toml does not allow it ({setting})")
