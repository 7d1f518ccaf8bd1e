"""Measures Ganger beside other job queues: the same jobs, in turn, in interleaved rounds.

Each round starts each queue alone with its servers and workers, measures, and stops it. A queue
that cannot be measured has the reason in its row.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..options import at_least, end_as_by_ctrl_c, folder
from . import driver, rounds, tables
from .catalogue import NAMES, chosen

if TYPE_CHECKING:
    from .catalogue import Peer
    from .results import Measured

QUIET_LOAD = 0.5
"""Above this load average other programs take part in what is measured."""


def main() -> int:
    """Measure, print the tables, fill them into a page; exit code 1 if a queue failed."""
    options = arguments(sys.argv[1:])
    end_as_by_ctrl_c()
    driver.adopt_orphans()
    peers = chosen(options.only)
    begin, load = time.monotonic(), os.getloadavg()[0]
    try:
        found = rounds.measure(peers, options)
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started is stopped", file=sys.stderr)
        return 130
    finally:
        driver.end_descendants()
    text = tables.whole(peers, found, run(options, time.monotonic() - begin, load))
    print(f"\n{text}")
    if options.page is not None:
        tables.fill_in(options.page, text)
    if options.plot is not None:
        _plot(options.plot, peers, found)
    return 1 if any(one.has_failed for one in found) else 0


def _plot(path: Path, peers: list[Peer], found: list[Measured]) -> None:
    try:
        from . import plots  # noqa: PLC0415 - matplotlib is needed for nothing else
    except ImportError as error:
        print(f"not drawn: {error.name} is not installed (make bench-peers installs it)")
        return
    plots.draw(path, peers, found)


def arguments(given: list[str]) -> argparse.Namespace:
    """The options; leaves with exit code 2 and one line if one is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rounds", type=at_least(1), default=3, help="interleaved rounds (3)")
    add("--jobs", type=at_least(10), default=1_000, help="no-op jobs in a round (1000)")
    add("--idle", type=at_least(1), default=60, help="single jobs on an idle queue (60)")
    add("--listed", type=at_least(0), default=100_000, help="jobs of the list; 0: none (100000)")
    add("--only", nargs="+", choices=NAMES, metavar="PEER", help=f"of {', '.join(NAMES)}")
    add("--dir", type=folder, help="where to write (the temporary directory)")
    add("--page", type=page, help="put the tables into this page")
    add("--plot", type=Path, help="draw the figures into this file (SVG or PNG)")
    return parser.parse_args(given)


def page(text: str) -> Path:
    """A page that has a place for the tables."""
    try:
        tables.with_tables(Path(text).read_text(encoding="utf-8"), "")
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None
    return Path(text)


def run(options: argparse.Namespace, seconds: float, load: float) -> str:
    """One line that says what was measured where; ``load`` is the load average before."""
    machine = f"{os.cpu_count()} processors, Linux {platform.release()}, Python"
    machine += f" {platform.python_version()}"
    sizes = f"{options.rounds} rounds of {options.jobs:,} jobs and {options.idle} idle jobs,"
    sizes += f" a list of {options.listed:,}"
    quiet = "" if load < QUIET_LOAD else f" **The machine was not quiet**: load {load:.1f} before."
    today = dt.datetime.now(tz=dt.UTC).date()
    return f"{today}, {machine}: {sizes}, in {seconds / 60:.1f} minutes.{quiet}"


if __name__ == "__main__":
    sys.exit(main())
