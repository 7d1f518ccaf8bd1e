"""The users of the remote API: the file with their names, secrets and options.

One line for each user, as in Ganeti's file: ``NAME SECRET [OPTION,...]``. Empty lines and what
follows a ``#`` at the beginning of a line are ignored. Source: Ganeti 3.0, RAPI. What a secret is:
`rapi_passwords`. What the options permit: `ganger.rapi.roles`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from typing import TYPE_CHECKING

import msgspec

from .. import errors
from ..disk import documents
from . import rapi_passwords, rapi_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

ROLES = ("read", "operate", "admin")
"""The roles of a new user."""

OPTIONS = frozenset({*ROLES, "write", "exec"})
"""What the third part of a line may name, beside opcodes."""

OPCODE_OPTION = "opcode:"
"""Begins an option that names an opcode."""

_NEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_OPCODE = re.compile(r"OP_[A-Z0-9_]{1,60}")
_PARTS = 3


class User(msgspec.Struct, frozen=True):
    """One user: a name, and what the options of the line permit."""

    name: str
    secret: str = ""
    """The password, or its hash behind the name of a scheme in braces."""
    options: frozenset[str] = frozenset()
    """``read``, ``write``, ``operate``, ``admin``, ``exec``."""
    opcodes: frozenset[str] = frozenset()
    """The opcodes that an operator may submit."""

    def __repr__(self) -> str:
        """Without the secret, because logs show values."""
        return f"User({self.name!r}, options={sorted(self.options)})"

    @property
    def line(self) -> str:
        """The line of the file."""
        names = [name for name in (*ROLES, "write", "exec") if name in self.options]
        words = [*names, *(OPCODE_OPTION + opcode for opcode in sorted(self.opcodes))]
        return f"{self.name} {self.secret} {','.join(words)}".rstrip()


NOBODY = User("")
"""Somebody who has not said who he is."""


def parse(text: str) -> dict[int, User]:
    r"""The users, by the numbers of their lines.

    `BadRequestError` says which line is wrong, and how; it repeats no secret.

    >>> parse("# who\njoe {HA1}0123 write")
    Traceback (most recent call last):
    ganger.storage.errors.BadRequestError: line 2: {HA1} needs 32 hexadecimal digits
    """
    found: dict[int, User] = {}
    lines_of: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            user = _user(line)
        except errors.BadRequestError as error:
            raise errors.BadRequestError(f"line {number}: {error.text}") from None
        if user.name in lines_of:
            text = f"line {number}: user {user.name} is in line {lines_of[user.name]} already"
            raise errors.BadRequestError(text)
        if len(found) == rapi_settings.USERS_MAX:
            raise errors.BadRequestError(f"line {number}: more than {len(found)} users")
        lines_of[user.name] = number
        found[number] = user
    return found


def _user(line: str) -> User:
    parts = line.split(None, _PARTS - 1)
    if len(parts) < _PARTS - 1:
        raise errors.BadRequestError("expected NAME SECRET [OPTION,...]")
    name, secret, *rest = parts
    if ":" in name or not name.isprintable():
        raise errors.BadRequestError("a name must not contain a colon or control characters")
    problem = rapi_passwords.problem(secret)
    if problem:
        raise errors.BadRequestError(problem)
    words = [word.strip() for part in rest for word in part.split(",")]
    opcodes = [word.removeprefix(OPCODE_OPTION) for word in words if word.startswith(OPCODE_OPTION)]
    for opcode in opcodes:
        if not _OPCODE.fullmatch(opcode):
            raise errors.BadRequestError(f"expected opcode:OP_..., got {opcode[:60]!r}")
    options = {word for word in words if word and not word.startswith(OPCODE_OPTION)}
    unknown = sorted(options - OPTIONS)
    if unknown:
        known = ", ".join(sorted(OPTIONS))
        raise errors.BadRequestError(f"unknown option {unknown[0][:60]!r}; known: {known}")
    return User(name, secret, frozenset(options), frozenset(opcodes))


def read(path: Path) -> dict[int, User]:
    """As `parse`, for a file; no users without one. `StorageError` with file and line."""
    with documents.storage_errors(path):
        status = os.stat(path) if os.path.exists(path) else None
    if status is not None:
        if not stat.S_ISREG(status.st_mode):
            raise errors.StorageError(f"{path}: not a regular file")
        if status.st_size > rapi_settings.USERS_BYTES_MAX:
            limit = rapi_settings.USERS_BYTES_MAX
            raise errors.StorageError(f"{path}: larger than {limit} bytes")
        if status.st_mode & stat.S_IWOTH:
            text = "every user may write into it, and so give himself rights; chmod it to 600"
            raise errors.StorageError(f"{path}: {text}")
    data = documents.read(path)
    try:
        return parse((data or b"").decode())
    except UnicodeDecodeError as error:
        raise errors.StorageError(f"{path}: not UTF-8") from error
    except errors.BadRequestError as error:
        raise errors.StorageError(f"{path}: {error.text}") from error


def add(path: Path, user: User, *, is_replaced: bool = False) -> None:
    """Add a user, or replace his line. `BadRequestError` if he is there, or his name is none."""
    require_new_name(user.name)
    documents.make_private_directory(path.parent)
    with _alone(path):
        number = _number(path, user.name)
        if number is not None and not is_replaced:
            raise errors.BadRequestError(f"there is a user {user.name} already")
        lines = _lines(path)
        if number is None:
            lines.append(user.line)
        else:
            lines[number - 1] = user.line
        _write(path, lines)


def require_new_name(name: str) -> None:
    """`BadRequestError` if no new user may be called so."""
    if not _NEW_NAME.fullmatch(name):
        text = f"name {name!r}: expected up to 64 letters, digits and . _ @ - (not first)"
        raise errors.BadRequestError(text)


def remove(path: Path, name: str) -> None:
    """Remove a user; `BadRequestError` if there is none of this name."""
    missing = errors.BadRequestError(f"there is no user {name}")
    if not path.parent.is_dir():
        raise missing
    with _alone(path):
        number = _number(path, name)
        if number is None:
            raise missing
        lines = _lines(path)
        del lines[number - 1]
        _write(path, lines)


def _number(path: Path, name: str) -> int | None:
    """The line of a user. Raises as `read`: a file that is wrong is not made worse."""
    return next((number for number, user in read(path).items() if user.name == name), None)


def _lines(path: Path) -> list[str]:
    """The lines of the file, which keeps its comments."""
    text = (documents.read(path) or b"").decode().removesuffix("\n")
    return text.split("\n") if text else []


def _write(path: Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    parse(text)
    documents.replace(path, text.encode(), flush=True, mode=documents.SECRET_MODE)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One change of the file at a time."""
    with documents.storage_errors(path.parent):
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            os.close(descriptor)
            raise
    try:
        yield
    finally:
        os.close(descriptor)
