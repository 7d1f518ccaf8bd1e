"""The campaign in the world of hosts (`hosts_world`): any faults, then none, and all must drain.

    python -m tests.torture.hosts.simulated_hosts SEED CASE

plays one case again and prints everything that happened in it.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.torture.hosts.hosts_world import HostsWorld, hosts_world
from tests.torture.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS, FAULTS = 8, 6


def play(seed: int, case: int, root: Path, *, is_traced: bool = False) -> HostsWorld:
    """One world, played to its end."""
    with hosts_world(f"hosts {seed} {case}", root) as made:
        made.agenda.trace = [] if is_traced else None
        chosen = random.Random(f"sizes {seed} {case}")
        made.play(faults=chosen.randint(1, FAULTS), jobs=chosen.randint(2, JOBS))
    return made


def run_simulated_hosts(count: int, seed: int, folder: Path) -> Tally:
    """Play ``count`` worlds of a master and hosts, each with some faults."""
    tally, figures = Tally(), Counter[str]()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else folder) as root:
        for case in range(count):
            made = play(seed, case, Path(root))
            oracle, problems = made.oracle, made.agenda.problems
            figures += made.agenda.injected
            figures["tasks"] += oracle.starts.total()
            figures["jobs"] += len(made.master.jobs)
            text = f"seed {seed} case {case}: {'; '.join(problems[:3])}"
            if oracle.lost or oracle.doubled or oracle.conflicting or not problems:
                tally.judge(
                    text,
                    lost=oracle.lost,
                    doubled=oracle.doubled,
                    conflicting=oracle.conflicting,
                )
            else:
                tally.failed(text)
    tally.figures.update({what: str(number) for what, number in sorted(figures.items())})
    return tally


def _told(seed: int, case: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as root:
        made = play(seed, case, Path(root), is_traced=True)
    yield from made.agenda.trace or ()
    yield from made.agenda.problems


if __name__ == "__main__":
    for _line in _told(int(sys.argv[1]), int(sys.argv[2])):
        print(_line)
