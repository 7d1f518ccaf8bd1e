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


class Campaign(msgspec.Struct, frozen=True):
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
    # property, name, module, how many with `make torture`, how many with `make test`, what it needs
    Campaign("D1", "kill at each call", "kills.kill_at_calls", 1_000, 3, "strace"),
    Campaign("D1", "random kills", "kills.random_kills", 1_000, 4),
    Campaign("D2, D3", "power loss", "power.power_loss", 50_000, 250),
    Campaign("D2, D3", "power loss in scenes", "power.scene_losses", 20_000, 20),
    Campaign("D4", "deaths of jobs", "kills.deaths_of_jobs", 500, 6),
    Campaign("D5", "restarts", "kills.restarts", 200, 2),
    Campaign("D6", "component kills", "kills.component_kills", 500, 8),
    Campaign("D6, D13", "simulated faults", "simulation.playing", 5_000, 8),
    Campaign("D8", "mutated directories", "damage.mutated_directories", 1_000, 30),
    Campaign("D9", "refused calls", "system_calls.refused_calls", 490, 4, "strace"),
    Campaign("D10", "clock jumps", "simulation.playing", 500, 3),
    Campaign("D11", "fuzzed frames", "fuzz.fuzzed_frames", 1_000_000, 400),
    Campaign("D11", "fuzzed requests", "fuzz.fuzzed_requests", 50_000, 40),
    Campaign("D11", "fuzzed documents", "fuzz.fuzzed_documents", 200_000, 1_000),
    Campaign("D12", "soak", "soak", 20_000, 60),
    Campaign("D13", "queue model", "simulation.queue_cases", 2_000, 2),
    Campaign("D13", "lost wake ups", "simulation.playing", 1_000, 6),
    Campaign("D14", "locking model", "locks.model_steps", 1_000_000, 8_000),
    Campaign("D14", "lock histories", "locks.lock_histories", 10_000, 100),
    Campaign("D15", "tasks on hosts", "kills.tasks_on_hosts", 800, 2),
    Campaign("D15", "hosts at each call", "kills.hosts_at_calls", 400, 1, "strace"),
    Campaign("D15", "simulated hosts", "hosts.simulated_hosts", 10_000, 60),
]
