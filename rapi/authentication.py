"""Finds out who sends a request: HTTP's basic authentication against the users file."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Protocol

from ..storage.access import rapi_passwords, rapi_settings
from ..storage.access.rapi_users import NOBODY, User
from .declarations import Right
from .logins import Logins
from .problems import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from .notes import Notes


class Users(Protocol):
    """Knows the users as of now (`users_file.UsersFile`)."""

    @property
    def users(self) -> Mapping[str, User]:
        """The users by name."""

    def look(self) -> None:
        """Notice changes."""


class Authentication:
    """Knows the users, and who has just proved to be one.

    ``is_required``: whether also a request that only looks needs a user.
    """

    def __init__(
        self,
        users: Users,
        notes: Notes,
        *,
        is_required: bool,
        logins: Logins | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._users = users
        self._is_required = is_required
        self._logins = logins or Logins()
        self._refusals = _Refusals(notes, clock)

    async def user(self, request: Request) -> User:
        """The user of a request, `NOBODY` without credentials; `HttpError` 401 for wrong ones."""
        given = request.headers.get("authorization")
        if given is None:
            return NOBODY
        address = request.client.host if request.client else ""
        found = _credentials(given)
        if found is None:
            self._refusals.note(address, why="malformed credentials")
            raise self.demand()
        self._users.look()
        known = self._users.users
        user = await self._logins.user(known, *found, address)
        if user is None:
            # What is no known name may be a password in the wrong place.
            is_known = found[0] in known
            why = "wrong password" if is_known else "unknown user"
            self._refusals.note(address, why=why, user=found[0] if is_known else "")
            raise self.demand()
        return user

    def current(self, user: User) -> User | None:
        """The user as the file has him now; None if he is gone, or must log in anew."""
        if user is NOBODY:
            return NOBODY
        self._users.look()
        found = self._users.users.get(user.name)
        return found if found is not None and found.secret == user.secret else None

    def require(self, user: User, right: Right) -> None:
        """`HttpError` 401 if only a known user may do this."""
        is_look = right in {Right.NOTHING, Right.READ}
        if user is NOBODY and right is not Right.NOTHING and (self._is_required or not is_look):
            raise self.demand()

    def demand(self) -> HttpError:
        """The error that asks for credentials."""
        realm = rapi_passwords.REALM
        return HttpError(401, headers={"WWW-Authenticate": f'Basic realm="{realm}"'})

    def look(self) -> None:
        """Notice changes of the users file, also while no request comes."""
        self._users.look()
        self._refusals.look()

    def close(self) -> None:
        """End the thread that compares passwords."""
        self._logins.close()


class _Refusals:
    """Logs refused attempts, of many within a short time only their number."""

    def __init__(self, notes: Notes, clock: Callable[[], float]) -> None:
        self._notes = notes
        self._clock = clock
        self._since = clock()
        self._count = 0

    def note(self, address: str, **fields: str) -> None:
        """An attempt was refused."""
        self.look()
        self._count += 1
        if self._count <= rapi_settings.REFUSALS_LOGGED_MAX:
            self._notes.warning("login refused", address=address, **fields)

    def look(self) -> None:
        """Begin a new period when the old one is over."""
        now = self._clock()
        if now - self._since < rapi_settings.REFUSALS_LOGGED_SECONDS:
            return
        further = self._count - rapi_settings.REFUSALS_LOGGED_MAX
        if further > 0:
            self._notes.warning("further logins refused", count=further)
        self._since, self._count = now, 0


def _credentials(header: str) -> tuple[str, str] | None:
    """Name and password from the header; None if that is malformed."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, mark, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except ValueError:
        # No Base64, no ASCII in it, or no UTF-8 behind it.
        return None
    if not mark or len(password) > rapi_settings.PASSWORD_BYTES_MAX:
        return None
    return name, password
