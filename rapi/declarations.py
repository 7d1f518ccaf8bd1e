"""How resources of the remote API are declared: paths, methods, rights, parameters. Pure.

A file of the package holds the resources of one noun in its ``RESOURCES``; `table` joins them. The
routes (`application`), who may do what (`roles`) and the OpenAPI document come from them.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from ..storage import errors, request_keys, settings
from ..storage.access import rapi_settings
from ..storage.access.rapi_users import User
from ..storage.jobs.origins import Submitter
from ..transport.client.async_client import AsyncClient
from .problems import HttpError

SharedT = TypeVar("SharedT")

NAME: Final = re.compile(r"[\w.-]+", re.ASCII)
"""What a part of a path that varies looks like."""


KEY_HEADER: Final = "idempotency-key"
"""A second submission of a user with the same value of this header stores nothing."""


class Right(enum.Enum):
    """What a user needs to use a method of a resource."""

    NOTHING = "nothing"
    """Also for somebody who has not said who he is."""

    READ = "read"
    """To look at jobs, rules, locks and the configuration."""

    WAIT = "wait"
    """To wait for changes of a job: of Ganeti's options only ``write`` has it."""

    SUBMIT = "submit"
    """To submit the opcodes of the request."""

    CANCEL = "cancel"
    """To cancel jobs and to change their priority."""

    FILTERS = "filters"
    """To change filter rules."""

    ADMIN = "admin"
    """Everything else that changes something."""


class Parameter(msgspec.Struct, frozen=True):
    """A parameter in the query string."""

    name: str
    kind: type = str
    """bool and int parameters are integers in the text; a list may be repeated."""
    summary: str = ""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as its handler gets it: checked, and from somebody who may do it."""

    client: AsyncClient
    user: User
    resource: str = ""
    """The path of the resource, as it is declared."""
    path: dict[str, str] = {}
    """The parts of the path that vary, by name."""
    query: dict[str, list[str]] = {}
    """The values of each parameter in the query string, without the empty ones."""
    body: Any = msgspec.UNSET
    """The JSON of the body, or what the method's ``reads`` made of it; UNSET: there was none."""
    headers: dict[str, str] = {}
    """By lower-case names."""
    shared: Mapping[type, Any] = {}
    """What requests share, by its class, such as the feed of jobs and their listings."""

    def of(self, kind: type[SharedT]) -> SharedT:
        """The object of this class that requests share; `KeyError` if nobody has given one."""
        found: SharedT = self.shared[kind]
        return found

    @property
    def job_id(self) -> int:
        """The id of the job in the path; `UnknownJobError` if no job can have it.

        Rights and handlers both take it from here: two readings of one text may differ.
        """
        digits = self.path["job_id"]
        if not (found := whole(digits)):
            raise errors.UnknownJobError(f"there is no job {digits}")
        return found

    @property
    def submitter(self) -> Submitter:
        """The user, as the daemon notes it with a job."""
        return Submitter(user=self.user.name, via="rapi")

    @property
    def key(self) -> str | None:
        """The idempotency key of a submission, among those of this user; None: it has none.

        A key that another user has guessed must not tell him which job it made.
        """
        given = self.headers.get(KEY_HEADER)
        if given is None:
            return None
        request_keys.check(given, KEY_HEADER)
        # A name has no blanks.
        own = f"rapi {self.user.name} {given}"
        if len(own.encode()) <= settings.KEY_BYTES_MAX:
            return own
        return f"rapi {hashlib.sha256(own.encode()).hexdigest()}"

    def text(self, name: str) -> str | None:
        """The first value of a parameter; None if it is not given."""
        values = self.query.get(name)
        return values[0] if values else None

    def count(self, name: str, default: int) -> int:
        """The number in a parameter, which has no sign; `HttpError` 400 if it is none."""
        text = self.text(name)
        found = default if text is None else whole(text)
        if found is None:
            raise HttpError(400, f"Invalid value for the '{name}' parameter")
        return found

    def integer(self, name: str) -> int:
        """The number in a parameter; 0 if it is not given. `HttpError` 400 if it is none."""
        text = self.text(name)
        if text is None:
            return 0
        try:
            return int(text)
        except ValueError as error:
            raise HttpError(400, f"Invalid value for the '{name}' parameter") from error

    def flag(self, name: str) -> bool:
        """Whether the number in a parameter is another one than 0."""
        return bool(self.integer(name))

    def names(self, name: str) -> list[str] | None:
        """The parts of a parameter between commas; None if it is not given."""
        text = self.text(name)
        return None if text is None else [part.strip() for part in text.split(",")]


Handler = Callable[[Call], Awaitable[Any]]
"""Answers a request: plain data for the body, or a `Response` for something other than JSON."""


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method of a resource."""

    handler: Handler
    right: Right
    summary: str
    """One sentence, for the OpenAPI document."""
    query: tuple[Parameter, ...] = ()
    opcode: str = ""
    """The opcode that a request submits: its parameters are those of the body."""
    more_opcodes: tuple[str, ...] = ()
    """Opcodes that a request submits besides."""
    is_own: bool = False
    """Whether Ganeti has no such method, where it has the resource."""
    body: Any = None
    """The type of the body, for the OpenAPI document, or None."""
    reads: Callable[[Any], Any] | None = None
    """Makes the value of ``body`` from JSON, for the look at the user's rights and the handler."""
    reply: Any = None
    """The type of the reply, for the OpenAPI document, or None."""

    @property
    def opcodes(self) -> tuple[str, ...]:
        """The opcodes that are known before the body is: those that a request always submits."""
        return (self.opcode, *self.more_opcodes) if self.opcode else ()


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource: its path, with names of the parts that vary in braces, and its methods."""

    path: str
    methods: dict[str, Method]
    is_own: bool = False
    """Whether Ganeti has no such resource."""
    page: str = ""
    """The file of the page that browsers get; with methods beside it, only browsers."""


def whole(text: str) -> int | None:
    """The number that these digits are; None if they are none, or more than any number needs.

    >>> whole("17"), whole("-1"), whole("9" * 19), whole("0" * 30 + "7")
    (17, None, None, 7)
    """
    is_number = text.isascii() and text.isdecimal()
    digits = text.lstrip("0") or "0"
    return int(digits) if is_number and len(digits) <= rapi_settings.JOB_ID_DIGITS_MAX else None


def fits(path: Mapping[str, str]) -> bool:
    """Whether the parts of a path that vary look as they must."""
    return all(map(NAME.fullmatch, path.values()))
