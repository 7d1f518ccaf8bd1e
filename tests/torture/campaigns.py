"""Every campaign of faults: one table, for `make test` (a share) and `make torture` (all)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.tally import Tally


class Run(Protocol):
    """How a campaign is run: ``count`` faults, chosen by ``seed``, in an empty ``folder``."""

    def __call__(self, count: int, seed: int, folder: Path) -> Tally:
        """Run it; returns what it counted."""


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """One campaign: the function ``run_NAME`` of the module ``tests.torture.MODULE``."""

    property: str
    name: str
    module: str
    full: int
    """How many faults `make torture` puts in."""
    share: int
    """How many of them `make test` puts in."""
    needs: str = ""
    """A program that must be installed, if any."""

    def load(self) -> Run:
        """The function that runs it."""
        module = importlib.import_module(f"tests.torture.{self.module}")
        return cast("Run", getattr(module, "run_" + self.name.replace(" ", "_")))


CAMPAIGNS = [
    Campaign(property="D2, D3", name="power loss", module="power", full=50_000, share=2_000),
]
