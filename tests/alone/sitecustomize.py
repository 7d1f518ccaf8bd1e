"""Hides the folders `ganeti` and `lab` of Ganger from each Python that has this on its path."""

from __future__ import annotations

import sys
from typing import Any

HIDDEN = {"ganeti", "lab"}


class _Hidden:
    """Comes before all finders."""

    @staticmethod
    def find_spec(name: str, _path: Any = None, _target: Any = None) -> None:
        root, _, below = name.partition(".")
        if root == "ganger" and HIDDEN & {*below.split(".")}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, _Hidden)
