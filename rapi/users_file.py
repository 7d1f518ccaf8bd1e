"""Watches the users file: its users as of now. An invalid new version leaves the old one in force.

A look costs one system call while the file stays as it is, so that every request can look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..storage import errors
from ..storage.access import rapi_passwords, rapi_users

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..storage.access.rapi_users import User
    from .notes import Notes

_WARNINGS_MAX = 20
"""Of more passwords only their number is logged."""

_Version = tuple[int, ...]


class UsersFile:
    """The users in the file; `look` reads it again when it has changed."""

    def __init__(self, path: Path, notes: Notes) -> None:
        self._path = path
        self._notes = notes
        self._version: _Version | None = None
        self._users: dict[str, User] = {}
        self._problem = ""
        self.look()

    @property
    def users(self) -> Mapping[str, User]:
        """The users by name."""
        return self._users

    def look(self) -> None:
        """Read the file if it is another than at the last look."""
        version = _version(self._path)
        if version == self._version:
            return
        is_first = self._version is None
        self._version = version
        try:
            lines = rapi_users.read(self._path)
        except errors.StorageError as error:
            self._warn_of(error.text)
            return
        self._users = {user.name: user for user in lines.values()}
        self._problem = ""
        if not is_first:
            self._notes.info("users read again", users=len(lines))
        self._look_at_secrets(lines)

    def _warn_of(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            text = "users file cannot be used; the users stay as they were"
            self._notes.warning(text, problem=problem, users=len(self._users))

    def _look_at_secrets(self, lines: Mapping[int, User]) -> None:
        """Warn of secrets that are not as they should be, without repeating them."""
        warnings = [
            (text, number, user.name)
            for number, user in lines.items()
            if (text := _warning(user.secret))
        ]
        for text, number, name in warnings[:_WARNINGS_MAX]:
            self._notes.warning(text, user=name, line=number)
        further = len(warnings) - _WARNINGS_MAX
        if further > 0:
            self._notes.warning("further passwords are not as they should be", count=further)


def _warning(secret: str) -> str:
    if not rapi_passwords.is_known(secret):
        return "password of unknown scheme never matches"
    if rapi_passwords.is_readable(secret):
        return "password can be read in the users file; hash it"
    return ""


def _version(path: Path) -> _Version:
    """Changes whenever the file does; empty while there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
