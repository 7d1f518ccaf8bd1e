"""The order of names that people expect: ``node9`` before ``node10``."""

from __future__ import annotations

import re

_NUMBER = re.compile("0*([0-9]+)")


def natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """The key that sorts names with their numbers as numbers.

    Text and numbers alternate in it; of two numbers the shorter one comes first.

    >>> sorted(["node10", "node9", "node09"], key=natural_key)
    ['node09', 'node9', 'node10']
    """
    parts = _NUMBER.split(name)
    return [(len(part) * (place % 2), part) for place, part in enumerate(parts)], name
