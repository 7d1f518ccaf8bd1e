"""`make torture`: every campaign in full, and one table of what came of it."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults import harness
from tests.torture.campaigns import CAMPAIGNS, Campaign
from tests.torture.tally import Line, Tally, merged, table

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGIN, END = "<!-- torture: begin -->\n", "<!-- torture: end -->"


def main() -> int:
    """Run what was asked for; the exit code is 1 if any promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--only", default="", help="property or name of the campaigns to run")
    parser.add_argument("--seed", type=int, default=0, help="repeat a run (default: a new one)")
    parser.add_argument("--percent", type=float, default=100.0, help="share of the full counts")
    parser.add_argument("--page", type=Path, help="put the table into this page")
    wanted = parser.parse_args()
    seed = wanted.seed or int.from_bytes(os.urandom(4), "big")
    chosen = [
        found
        for found in CAMPAIGNS
        if wanted.only in ("", found.property, *found.property.split(", "), found.name)
    ]
    if not chosen:
        known = ", ".join(f"{found.property} {found.name}" for found in CAMPAIGNS)
        print(f"--only: expected one of {known}", file=sys.stderr)
        return 2
    lines = [line for found in chosen if (line := _run(found, seed, wanted.percent)) is not None]
    print(table(lines))
    if wanted.page:
        _fill_in(wanted.page, lines)
    for line in lines:
        for fault in line.tally.faults:
            print(f"{line.property} {line.name}: {fault:.2000}", file=sys.stderr)
    return 0 if len(lines) == len(chosen) and all(line.tally.is_clean for line in lines) else 1


def _run(campaign: Campaign, seed: int, percent: float) -> Line | None:
    if campaign.needs and shutil.which(campaign.needs) is None:
        print(f"NOT RUN: {campaign.property} {campaign.name} needs {campaign.needs}")
        return None
    count = max(1, round(campaign.full * percent / 100))
    print(f"{campaign.property} {campaign.name}: {count} faults, seed {seed} ...", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ganger-torture-") as folder:
        try:
            tally = campaign.run(count, seed, Path(folder))
        except (KeyboardInterrupt, SystemExit):
            # It may have been about to start a daemon, which it could not stop any more.
            harness.end_all_of(Path(folder))
            raise
        except Exception as error:  # noqa: BLE001 - the other campaigns must be run all the same
            traceback.print_exc()
            tally = Tally(faults=[f"the campaign itself failed: {error!r}"])
    seconds = time.monotonic() - start
    summary = f"{tally.survived} of {tally.injected} survived, {tally.wanted} wanted"
    print(f"  {summary}, {seconds:.0f} s", flush=True)
    return Line(
        property=campaign.property, name=campaign.name, seed=seed, seconds=seconds, tally=tally
    )


def _fill_in(page: Path, lines: Sequence[Line]) -> None:
    """Put the table into the page; campaigns that were not run keep the rows that they have."""
    before, _, rest = page.read_text().partition(BEGIN)
    shown, _, after = rest.partition(END)
    names = [(one.property, one.name) for one in CAMPAIGNS]
    page.write_text(f"{before}{BEGIN}{merged(shown, lines, names)}\n{END}{after}")


def _end_in_order(*_: object) -> None:
    """End as after Ctrl-C. A second signal does not interrupt what is done then."""
    signal.signal(signal.SIGTERM, _go_on)
    sys.exit(128 + signal.SIGTERM)


def _go_on(*_: object) -> None:
    """Nothing. Programs that are started would inherit it if the signal was ignored."""


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end_in_order)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
