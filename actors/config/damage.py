"""Decisions on a configuration that may be damaged. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ...storage import errors
from ...storage.cluster.integrity import problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.cluster.configuration import Configuration

_Answer = TypeVar("_Answer")


def undamaged(snapshot: Configuration, decide: Callable[[], _Answer]) -> _Answer:
    """What ``decide`` gives; `ModificationError` if damage of the configuration stands in its way.

    Decisions rely on the types of all objects, but the store serves a configuration with wrong
    ones, too, so that it can be repaired.
    """
    try:
        return decide()
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        found = problems(snapshot)
        if not found:
            raise
        raise errors.ModificationError(f"the configuration is damaged: {found[0]}") from error
