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

    def run(self, count: int, seed: int, folder: Path) -> Tally:
        """Run it; the tally says how many faults were wanted, and is not clean with fewer."""
        tally = self.load()(count, seed, folder)
        if not tally.wanted:
            tally.wanted = count
        return tally


CAMPAIGNS = [
    Campaign(
        property="D1",
        name="kill at each call",
        module="kill_at_calls",
        full=1_000,
        share=8,
        needs="strace",
    ),
    Campaign(property="D1", name="random kills", module="kills_daemon", full=1_000, share=15),
    Campaign(property="D2, D3", name="power loss", module="power", full=50_000, share=2_000),
    Campaign(property="D4", name="deaths of jobs", module="kills_jobs", full=500, share=36),
    Campaign(property="D5", name="restarts", module="kills_restarts", full=200, share=6),
    Campaign(property="D6", name="component kills", module="kills_components", full=500, share=40),
    Campaign(
        property="D6, D13", name="simulated faults", module="simulation", full=5_000, share=60
    ),
    Campaign(property="D8", name="mutated directories", module="mutations", full=1_000, share=100),
    Campaign(
        property="D9",
        name="refused calls",
        module="refused_calls",
        full=490,
        share=6,
        needs="strace",
    ),
    Campaign(property="D10", name="clock jumps", module="simulation", full=500, share=20),
    Campaign(property="D11", name="fuzzed frames", module="fuzz", full=1_000_000, share=20_000),
    Campaign(property="D12", name="soak", module="soak", full=20_000, share=700),
    Campaign(property="D13", name="lost wake ups", module="simulation", full=1_000, share=40),
]
