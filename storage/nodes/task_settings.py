"""What a host lets tasks do: ``node.toml`` in the data directory of its node daemon.

    [tasks]
    users = ["deploy", "www-data"]     # besides the daemon's own user; none without this line
    commands = ["/usr/bin/*"]          # programs, after a search of PATH; all without this line
    directories = ["/srv/*"]           # where commands may begin; all without this line
    calls = ["version", "node_info"]   # calls by name; all without this line
    opcodes = ["OP_GREET"]             # opcodes of packages of this host; all without this line
    paths = ["/srv/*"]                 # files that may be copied here, and looked at
    restricted_commands = "/etc/ganeti/restricted-commands"   # none without this line

A ``*`` stands for any text. Without the file, a task may run any command as the daemon's own user.
Without ``paths``, all files may be written if any command may run, and none otherwise: who writes
a program has it run sooner or later. A file may belong to the daemon's own user and to ``users``.
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
    calls: Sequence[str] = ("*",)
    opcodes: Sequence[str] = ("*",)
    paths: Sequence[str] | None = None
    restricted_commands: str | None = None
    """The directory with the programs of the call ``restricted_command``."""

    def __post_init__(self) -> None:
        for name in ("commands", "directories", "paths"):
            for pattern in getattr(self, name) or ():
                if not pattern.startswith(("/", "*")):
                    raise ValueError(f"{name}: expected absolute paths, got {pattern!r}")
        folder = self.restricted_commands
        if folder is not None and not folder.startswith("/"):
            raise ValueError(f"restricted_commands: expected an absolute path, got {folder!r}")

    @property
    def allowed_paths(self) -> Sequence[str]:
        """The files that may be written and looked at."""
        if self.paths is None:
            return ("*",) if "*" in self.commands else ()
        return self.paths

    def check(self, opcode: Mapping[str, Any]) -> None:
        """Raise `NotAllowedError` if this opcode of a task is not allowed."""
        match opcode.get("OP_ID"):
            case "OP_EXEC":
                self._check_command(opcode)
            case "OP_NODE_CALL":
                call = str(opcode.get("call"))
                if not _matches(call, self.calls):
                    raise _not_allowed(f"call {call!r} may not be made", "calls")
            case "OP_NODE_COPY" | "OP_TEST_DELAY":
                # What paths are allowed is known when links are followed, in the task.
                pass
            case other:
                if not _matches(str(other), self.opcodes):
                    raise _not_allowed(f"{other} may not run", "opcodes")

    def check_path(self, path: str) -> None:
        """Raise `NotAllowedError` if this file may not be written and looked at.

        ``path`` is absolute, and its directory has no links and no dots.
        """
        if not _matches(path, self.allowed_paths):
            raise _not_allowed(f"{path} may not be written or looked at", "paths")

    def check_owner(self, *names: str) -> None:
        """Raise `NotAllowedError` if no file may belong to this user, who is not the daemon's."""
        if not any(name in self.users for name in names):
            raise _not_allowed(f"no file may belong to user {names[0]!r}", "users")

    def _check_command(self, opcode: Mapping[str, Any]) -> None:
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
