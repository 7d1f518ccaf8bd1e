"""Decisions on a configuration that may be damaged. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .configuration import Configuration
from .integrity import problems

_Answer = TypeVar("_Answer")


def undamaged(
    snapshot: Configuration, decide: Callable[[], _Answer], refusal: Callable[[str], Exception]
) -> _Answer:
    """What ``decide`` gives; raises ``refusal`` if damage of the configuration stands in its way.

    Decisions rely on the types of all objects, but the store serves a configuration with wrong
    ones, too, so that it can be repaired. ``refusal`` makes the error of a text.
    """
    try:
        return decide()
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        found = problems(snapshot)
        if not found:
            raise
        raise refusal(f"the configuration is damaged: {found[0]}") from error
