"""How long a caller of the client is ready to wait: spans that a clock can count. No I/O."""

from __future__ import annotations

from typing import overload

from ...storage import errors

SPAN_SECONDS_MAX = 1_000_000_000.0
"""The longest span that is counted, some 30 years; an infinite one becomes this one."""

SLEEP_SECONDS_MAX = 86_400.0
"""The longest sleep at a time: the system refuses very long ones."""


@overload
def checked(seconds: float, name: str) -> float: ...
@overload
def checked(seconds: float | None, name: str) -> float | None: ...
def checked(seconds: float | None, name: str) -> float | None:
    """``seconds``, but at least 0 and at most `SPAN_SECONDS_MAX`; None stays None.

    `BadRequestError` names what is none (``name`` says which argument it is).

    >>> checked(float("inf"), "timeout")
    1000000000.0
    """
    if seconds is None:
        return None
    # Callers in programs without type checks give anything.
    given: object = seconds
    if not isinstance(given, int | float) or isinstance(given, bool) or given != given:  # noqa: PLR0124
        raise errors.BadRequestError(f"{name}: expected a number of seconds, got {given!r}")
    return max(0.0, min(given, SPAN_SECONDS_MAX))
