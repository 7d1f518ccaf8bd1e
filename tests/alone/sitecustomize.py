"""Hides the folders `ganeti` and `lab` of Ganger from each Python that has this on its path.

Their entry points are hidden, too, as in a package without them.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

HIDDEN = {"ganeti", "lab"}


def _is_hidden(module: str) -> bool:
    root, _, below = module.partition(".")
    return root == "ganger" and bool(HIDDEN & {*below.split(".")})


class _Hidden:
    """Comes before all finders."""

    @staticmethod
    def find_spec(name: str, path: Any = None, _target: Any = None) -> ModuleSpec | None:
        if _is_hidden(name):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name != "importlib.metadata":
            return None
        found = PathFinder.find_spec(name, path)
        assert found is not None
        assert found.origin is not None
        found.loader = _LoaderOfMetadata(name, found.origin)
        return found


class _LoaderOfMetadata(SourceFileLoader):
    """Loads `importlib.metadata`, where somebody needs it, without the hidden entry points."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        whole = module.entry_points

        def others(**wanted: Any) -> Any:
            found = whole(**wanted)
            # All groups are a dictionary in Python 3.11, and one series later.
            series = dict.values(found) if isinstance(found, dict) else [found]
            shown = (one for each in series for one in each if not _is_hidden(one.module))
            return module.EntryPoints(shown)

        module.entry_points = others  # type: ignore[attr-defined]


sys.meta_path.insert(0, _Hidden)
