"""Work in slices: a generator that yields when other messages may be handled. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

Found = TypeVar("Found")


def done(work: Generator[object, None, Found]) -> Found:
    """Do all of it at once; returns what it returns."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: Found = end.value
            return found
