"""Finds out who sends a request: HTTP's basic authentication against the users file."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from ..storage.rapi_users import NOBODY, User
from .declarations import Right
from .problems import HttpError

if TYPE_CHECKING:
    from starlette.requests import Request

REALM = "Ganeti Remote API"


class Authentication:
    """Knows the users, and who has just proved to be one.

    ``is_required``: whether also a request that only looks needs a user.
    """

    def __init__(self, users: dict[str, User], *, is_required: bool) -> None:
        self._users = users
        self._is_required = is_required

    async def user(self, request: Request) -> User:
        """The user of a request, `NOBODY` without credentials; `HttpError` 401 for wrong ones."""
        given = request.headers.get("authorization")
        if given is None:
            return NOBODY
        name, secret = _credentials(given)
        user = self._users.get(name)
        if user is None or user.secret != secret:
            raise self.demand()
        return user

    def require(self, user: User, right: Right) -> None:
        """`HttpError` 401 if only a known user may do this."""
        is_look = right in {Right.NOTHING, Right.READ}
        if user is NOBODY and right is not Right.NOTHING and (self._is_required or not is_look):
            raise self.demand()

    def demand(self) -> HttpError:
        """The error that asks for credentials."""
        return HttpError(401, headers={"WWW-Authenticate": f'Basic realm="{REALM}"'})


def _credentials(header: str) -> tuple[str, str]:
    """Name and password from the header; `HttpError` 401, or 400 for a header that is none."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        raise HttpError(401, headers={"WWW-Authenticate": f'Basic realm="{REALM}"'})
    try:
        name, _, secret = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise HttpError(401, headers={"WWW-Authenticate": f'Basic realm="{REALM}"'}) from error
    return name, secret
