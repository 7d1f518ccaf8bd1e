"""How much runs play: `make quick` no slow test and few examples, `make test` part of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

EXAMPLES = 5
VARIABLE = "GANGER_EXAMPLES"

USUAL_SHARE = 0.6
"""How much of a model `make test` plays, always the same. ``GANGER_SEED=random`` plays it whole."""


def configure() -> None:
    """Before the tests are collected: some models read how much they play."""
    os.environ[VARIABLE] = str(EXAMPLES)


def choose(items: list[pytest.Item]) -> list[pytest.Item]:
    """Take the slow tests out of ``items``, and return them; let the others draw few examples."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    items[:] = [item for item in items if not item.get_closest_marker("slow")]
    for item in items:
        draw_few(item)
    return slow


def draw_few(item: object) -> None:
    """Let a test of hypothesis draw up to `EXAMPLES`."""
    _limit(item, lambda _: EXAMPLES)


def draw_usual(items: Sequence[object]) -> None:
    """Let tests of hypothesis draw `USUAL_SHARE` of the examples that they name."""
    # A function with many parameters is the object of many tests.
    each = {
        (id(getattr(item, "obj", None)), id(getattr(item, "cls", None))): item for item in items
    }
    for item in each.values():
        _limit(item, lambda full: max(EXAMPLES, round(full * USUAL_SHARE)))


def _limit(item: object, most: Callable[[int], int]) -> None:
    for place, name in (
        (getattr(item, "cls", None), "settings"),
        # Where the decorator leaves them; hypothesis' own plugin for pytest looks there, too.
        (getattr(item, "obj", None), "_hypothesis_internal_use_settings"),
    ):
        found = getattr(place, name, None)
        if isinstance(found, settings) and found.max_examples > most(found.max_examples):
            setattr(place, name, settings(found, max_examples=most(found.max_examples)))
