"""Which tests are the core's, where the folders `ganeti` and `lab` are hidden (`make core`).

``PYTHONPATH=tests/alone`` hides them from every Python that a test starts.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "alone"
_HIDDEN = re.compile(
    r"^\s*(?:from|import) (?:ganger|tests)\b[^#\n]*\b(?:ganeti|lab)\b", re.MULTILINE
)
_FOLDERS = {"ganeti", "lab", "compatibility"}


def is_hidden() -> bool:
    """Whether this process does not find the folders."""
    return str(FOLDER) in sys.path


NEEDS_HIDDEN = pytest.mark.skipif(is_hidden(), reason="needs the folders that `make core` hides")
"""Marks a test of the core that meets what is hidden."""


def needs_hidden(path: Path) -> bool:
    """Whether a test's file or folder is about what is hidden, or imports it."""
    if _FOLDERS & {*path.parts}:
        return True
    return path.suffix == ".py" and _HIDDEN.search(path.read_text(encoding="utf-8")) is not None
