"""The key of a command that changes something: what is repeated under it is done once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..storage import errors, request_keys
from . import choices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_UNKNOWN = (
    errors.DeadlineError,
    errors.OutcomeUnknownError,
    errors.RequestFatalError,
    errors.ComponentRestartedError,
    errors.ConnectionLostError,
)
"""After these errors nobody knows whether the request was carried out."""


def key_option(what: str = "a change") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``--key`` of a command that makes ``what``."""
    text = f"Idempotency key: {what} that is repeated under it is made once."
    return click.option("--key", type=choices.Text(), callback=_given, help=text)


def _given(_: click.Context, __: click.Parameter, key: str | None) -> str | None:
    if key == "":
        # Probably an unset variable of a script: without a key a repetition is a second change.
        raise errors.UsageError("--key: is empty")
    try:
        return None if key is None else request_keys.check(key, "--key")
    except errors.BadRequestError as error:
        raise errors.UsageError(error.text) from error


@contextmanager
def under(key: str | None) -> Iterator[str]:
    """The key of a request: this one, or a new one.

    If nobody knows whether the request was carried out, the error names the key.
    """
    from ..transport.client.requests import fresh_key  # noqa: PLC0415 - for changes alone

    used = key or fresh_key()
    try:
        yield used
    except _UNKNOWN as error:
        raise type(error)(f"{error.text} (to repeat it safely: --key {used})") from error
