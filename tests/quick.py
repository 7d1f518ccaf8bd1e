"""What `make quick` takes of the tests: none that is marked as slow, few examples of each model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

EXAMPLES = 5


def configure() -> None:
    """Before the tests are collected: some models read how much they play."""
    os.environ["GANGER_EXAMPLES"] = str(EXAMPLES)


def choose(items: list[pytest.Item]) -> list[pytest.Item]:
    """Take the slow tests out of ``items``, and return them; let the others draw few examples."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    items[:] = [item for item in items if not item.get_closest_marker("slow")]
    for item in items:
        draw_few(item)
    return slow


def draw_few(item: object) -> None:
    """Let a test of hypothesis draw up to `EXAMPLES`."""
    for place, name in (
        (getattr(item, "cls", None), "settings"),
        # Where the decorator leaves them; hypothesis' own plugin for pytest looks there, too.
        (getattr(item, "obj", None), "_hypothesis_internal_use_settings"),
    ):
        found = getattr(place, name, None)
        if isinstance(found, settings) and found.max_examples > EXAMPLES:
            setattr(place, name, settings(found, max_examples=EXAMPLES))
