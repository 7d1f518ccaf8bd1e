"""``make bench``: measures floors, Ganger and RQ side by side in one run; compare the ratios."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ganger.storage import settings

from . import (
    config_side,
    floors,
    locks_side,
    luxi_side,
    nodes_side,
    passes_side,
    rapi_side,
    rq_side,
    rules_side,
    scale_side,
)
from .figures import heading, median, row
from .ganger_side import Ganger, Submissions
from .options import at_least, end_as_by_ctrl_c, folder
from .rq_side import Rq

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_SECONDS = 0.02
SUBMIT_CLIENTS = 8
SIZES = (1_000, 10_000, 100_000, 1_000_000)
"""Jobs of a long queue, up to the wanted number."""

ARCHIVED_PENDING = 5_000
"""Pending jobs beside twenty times as many archived ones."""

PARTS = (
    "floors",
    "submissions",
    "idle",
    "throughput",
    "memory",
    "locks",
    "rules",
    "configuration",
    "long-queue",
    "rule-changes",
    "passes",
    "scale",
    "starts",
    "rapi",
    "luxi",
    "nodes",
)


_PARTS_HELP = f"parts (all) of {', '.join(PARTS)}"

FRESH_TOO = {"idle", "throughput"}
"""The parts that measure Ganger with a fresh process for each job as well, which has no target."""


def main() -> int:
    """Measure and print."""
    options = arguments(sys.argv[1:])
    end_as_by_ctrl_c()
    try:
        _measure(options)
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started is stopped", file=sys.stderr)
        return 130
    return 0


def arguments(given: list[str]) -> argparse.Namespace:
    """The options; leaves with exit code 2 and one line if one is wrong."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=at_least(1), default=3, help="interleaved rounds (3)")
    add("--jobs", type=at_least(10), default=1_000, help="no-op jobs in a round (1000)")
    add("--steps", type=at_least(10), default=500, help="steps of a floor (500)")
    add("--pending", type=at_least(10), default=100_000, help="jobs of the long queue (100000)")
    add("--different", action="store_true", help="no two jobs of the long queue are alike")
    add("--only", nargs="+", choices=PARTS, metavar="PART", default=PARTS, help=_PARTS_HELP)
    add("--placement", choices=settings.PLACEMENTS, default="together")
    add("--dir", type=folder, help="where to write (the temporary directory)")
    return parser.parse_args(given)


def _measure(options: argparse.Namespace) -> None:
    Ganger.placement = options.placement
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="ganger-bench-", dir=options.dir)
        folder = Path(stack.enter_context(made))
        print(f"{os.cpu_count()} processors, Linux {platform.release()}, in {folder.parent}")
        if "floors" in options.only:
            floors.measure(folder, options.steps)
        ganger = stack.enter_context(Ganger(folder / "data"))
        fresh = None
        if not FRESH_TOO.isdisjoint(options.only):
            fresh = stack.enter_context(Ganger(folder / "fresh", "--fresh-processes"))
        rq = None
        if (reason := rq_side.missing()) is None:
            (folder / "redis").mkdir()
            rq = stack.enter_context(Rq(folder / "redis"))
        parts: dict[str, Callable[[], None]] = {
            "submissions": lambda: _submissions(ganger, rq, options.rounds, options.steps),
            "idle": lambda: _idle(_ways(fresh, ganger), rq, options.steps // 5),
            "throughput": lambda: _throughput(
                _ways(fresh, ganger), rq, options.rounds, options.jobs
            ),
            "memory": lambda: _memory(ganger),
            "locks": lambda: _locks(ganger, folder / "data", options.jobs),
            "rules": lambda: _rules(ganger, options.rounds, options.jobs),
            "configuration": lambda: _configuration(folder, options.steps),
            "long-queue": lambda: _long_queue(ganger, options.pending),
            "rule-changes": lambda: _rule_changes(folder, options.pending),
            "passes": lambda: _passes(options.pending, options.steps),
            "scale": lambda: _scale(folder, options),
            "starts": lambda: _starts(folder, options.pending, are_different=options.different),
            "rapi": lambda: rapi_side.measure(folder, options.steps),
            "luxi": lambda: luxi_side.measure(folder, options.steps),
            "nodes": lambda: nodes_side.measure(folder, options.steps, options.jobs),
        }
        for name, measure in parts.items():
            if name in options.only:
                measure()
        if reason is not None:
            print(f"\nRQ was not measured: {reason}.")


def _submissions(ganger: Ganger, rq: Rq | None, rounds: int, count: int) -> None:
    heading(f"Durable submit, nothing running ({rounds} interleaved rounds)")
    ours, theirs = [], []
    for number in range(rounds):
        found = ganger.submit(count, 1)
        ours.append(found.timings.milliseconds(0.5))
        row(f"Ganger, 1 client, round {number + 1}", _submitted(found))
        if rq is not None:
            timings = rq.submit(count)
            theirs.append(timings.milliseconds(0.5))
            row(f"RQ, 1 client, round {number + 1}", timings)
    if theirs:
        row("ratio Ganger / RQ, medians of p50", f"{median(ours) / median(theirs):.2f}")
    row("Ganger, flushes per acknowledged job", f"{found.flushes:.3f}")
    found = ganger.submit(count * 4, SUBMIT_CLIENTS)
    row(f"Ganger, {SUBMIT_CLIENTS} clients", _submitted(found))
    row("  flushes per acknowledged job", f"{found.flushes:.3f}")


def _submitted(found: Submissions) -> str:
    return f"{found.timings}   {found.per_second:8.0f} per s"


def _ways(fresh: Ganger | None, reused: Ganger) -> dict[str, Ganger]:
    """How Ganger gives jobs processes: a fresh one each, or one for many, in turn."""
    assert fresh is not None
    return {"fresh": fresh, "reused": reused}


def _idle(ways: dict[str, Ganger], rq: Rq | None, count: int) -> None:
    heading(f"Submit to finished, idle ({PAUSE_SECONDS * 1000:.0f} ms pause)")
    ours = {}
    for way, ganger in ways.items():
        acknowledged, finished = ganger.idle(count, PAUSE_SECONDS)
        row(f"Ganger, {way} processes, acknowledged", acknowledged)
        row(f"Ganger, {way} processes, finished", finished)
        ours[way] = finished.milliseconds(0.5)
    if rq is not None:
        theirs = rq.idle(count, PAUSE_SECONDS)
        row("RQ, finished", theirs)
        for way, found in ours.items():
            row(f"ratio {way} / RQ, p50", f"{found / theirs.milliseconds(0.5):.2f}")


def _throughput(ways: dict[str, Ganger], rq: Rq | None, rounds: int, jobs: int) -> None:
    heading(f"No-op jobs ({rounds} interleaved rounds)")
    ours: dict[str, list[float]] = {way: [] for way in ways}
    theirs = []
    flushes = {way: -ganger.flushes() for way, ganger in ways.items()}
    seconds = {way: -ganger.processor_seconds() for way, ganger in ways.items()}
    for number in range(rounds):
        for way, ganger in ways.items():
            ours[way].append(ganger.throughput(jobs))
            name = f"Ganger, {way} processes, round {number + 1}"
            row(name, f"{ours[way][-1]:8.0f} jobs per s")
        if rq is not None:
            theirs.append(rq.throughput(jobs // 5))
            row(f"RQ, round {number + 1}", f"{theirs[-1]:8.0f} jobs per s")
    for way, ganger in ways.items():
        per_job = (flushes[way] + ganger.flushes()) / (rounds * jobs)
        row(f"Ganger, {way}, flushes per job (its whole life)", f"{per_job:.3f}")
        time = (seconds[way] + ganger.processor_seconds()) / (rounds * jobs) * 1e3
        row(f"Ganger, {way}, daemon's processor time per job", f"{time:8.3f} ms")
        if theirs:
            row(f"ratio {way} / RQ, medians", f"{median(ours[way]) / median(theirs):.2f}")


def _memory(ganger: Ganger) -> None:
    heading("Memory (resident)")
    for name, size in ganger.memory().items():
        row(name, f"{size / 1_048_576:8.1f} MiB")


def _rules(ganger: Ganger, rounds: int, jobs: int) -> None:
    heading(f"No-op jobs under {rules_side.RULES} filter rules ({rounds} interleaved rounds)")
    without, under = [], []
    for number in range(rounds):
        without.append(ganger.throughput(jobs))
        row(f"no rule, round {number + 1}", f"{without[-1]:8.0f} jobs per s")
        with rules_side.twenty_rules(ganger):
            under.append(ganger.throughput(jobs))
        row(f"{rules_side.RULES} rules, round {number + 1}", f"{under[-1]:8.0f} jobs per s")
    row("ratio rules / none, medians", f"{median(under) / median(without):.2f}")


def _locks(ganger: Ganger, data: Path, pairs: int) -> None:
    heading(f"Locks over the wire ({locks_side.WAITERS:,} owners wait; take + free)")
    for held in locks_side.HELD:
        with locks_side.Crowd(data, held, locks_side.WAITERS):
            for clients, under_way in (
                (1, 1),
                (locks_side.CLIENTS, 1),
                (locks_side.CLIENTS, locks_side.UNDER_WAY),
            ):
                found = locks_side.updates(ganger, data, clients, 2 * pairs, under_way=under_way)
                how = f"{clients} x {under_way}" if under_way > 1 else f"{clients}"
                row(f"{held:,} held, {how} clients, a request", found.timings)
                row("  pairs of take and free", f"{found.pairs_per_second:8.0f} per s")
                daemon, client = found.daemon_seconds * 1e6, found.client_seconds * 1e6
                text = f"daemon {daemon:5.0f} us   client {client:5.0f} us"
                row("  processor time of a request", text)
    row("release to the next owner's grant", locks_side.wake_ups(data, pairs // 2))
    count = locks_side.LOCKS_OF_THE_DEAD
    row(f"death of a job to its {count} locks", locks_side.deaths_of_jobs(ganger, data, 20))
    row(f"death of a program to its {count} locks", locks_side.deaths_of_programs(data, 20))


def _configuration(folder: Path, steps: int) -> None:
    seconds = 2 * settings.CONFIG_WHOLE_SECONDS + 2
    for size in config_side.SIZES:
        with config_side.Cluster(folder / f"cluster-{size.replace(' ', '-')}", size) as cluster:
            heading(f"A configuration of {cluster.bytes:,} bytes over the wire")
            row("read of one object", cluster.reads(steps))
            for writers in (1, config_side.WRITERS):
                found = cluster.changes(writers, seconds)
                row(f"change of one object, {writers} writers", found.timings)
                row("  slowest", f"{found.timings.milliseconds(1):8.1f} ms")
                row("  changes", f"{found.per_second:8.0f} per s")


def _long_queue(ganger: Ganger, pending: int) -> None:
    heading(f"With {pending:,} jobs pending")
    found = rules_side.long_queue(ganger, pending)
    row("jobs stored, in batches", f"{found.stored_per_second:8.0f} per s")
    row("submissions in the 10 s after that", found.after)
    row("slowest of them", f"{found.after.milliseconds(1):8.1f} ms")
    row("a filter rule added, in force", found.added)
    row("slowest of them", f"{found.added.milliseconds(1):8.1f} ms")
    row("submissions while it is compared with all", found.calls)
    row("slowest of them", f"{found.calls.milliseconds(1):8.1f} ms")


def _rule_changes(folder: Path, pending: int) -> None:
    data = folder / "rule-changes"
    with Ganger(data) as ganger:
        scale_side.hold_all(ganger)
        stored = 0
        for size in SIZES:
            if size > pending:
                break
            scale_side.store(ganger, size - stored)
            scale_side.await_files(ganger, data)
            stored = size
            heading(f"Filter rules in force, one after the other, with {size:,} jobs alike pending")
            spent: dict[str, float] = {}
            for name, rule in rules_side.SHAPES.items():
                found = rules_side.changes(ganger, rule)
                spent[name] = found.added.milliseconds(0.5) + found.processor_seconds * 1e3
                row(f"{name}, added", found.added)
                row("  changed", found.changed)
                row("  deleted", found.deleted)
                row(
                    "  daemon's processor time for each", f"{found.processor_seconds * 1e3:8.1f} ms"
                )
            ratio = spent["one that looks at locks"] / spent["one that looks at opcodes"]
            row("one that looks at locks, beside opcodes", f"{ratio:8.2f} x")


def _passes(pending: int, steps: int) -> None:
    heading("A scheduling pass that starts one job")
    for size in SIZES:
        if size <= pending:
            row(
                f"{size:,} pending, no locks",
                passes_side.passes(size, steps, passes_side.without_locks),
            )
            row("  a node lock each", passes_side.passes(size, steps, passes_side.with_a_lock))


def _scale(folder: Path, options: argparse.Namespace) -> None:
    with Ganger(folder / "many-clients") as ganger:
        scale_side.hold_all(ganger)
        heading("Many clients submit at once")
        for clients in (8, 32, 500):
            found = scale_side.submit_together(folder / "many-clients", clients, 3.0)
            row(f"{clients} clients", f"{found.timings}   {found.per_second:8.0f} per s")
            row("  slowest; of one client: fewest, most", _fairness(found))
    data = folder / "long-queue"
    with Ganger(data) as ganger:
        scale_side.hold_all(ganger)
        stored = 0
        for size in SIZES:
            if size <= options.pending:
                stored += _at_size(ganger, data, size - stored, options)
        heading(f"{scale_side.WATCHES} clients wait for a job each")
        heard, strangers = scale_side.watch_together(ganger, data)
        row("cancel until its follower knows", heard)
        row("  others that were woken", strangers)


def _starts(folder: Path, pending: int, *, are_different: bool) -> None:
    data = folder / "just-stored"
    heading("Ready again after a kill: seconds until a listing is answered")
    with Ganger(data) as ganger:
        scale_side.hold_all(ganger)
        scale_side.store(ganger, pending, are_different=are_different)
        found = scale_side.restart(data, ganger.command)
        row(f"right after {pending:,} jobs were stored", found)
        scale_side.await_files(ganger, data)
        row("  the same, each job has a file", scale_side.restart(data, ganger.command))
    data = folder / "archived"
    with Ganger(data) as ganger:
        scale_side.archive(ganger, data, 20 * ARCHIVED_PENDING)
    with Ganger(data) as ganger:
        scale_side.hold_all(ganger)
        scale_side.store(ganger, ARCHIVED_PENDING)
        found = scale_side.restart(data, ganger.command)
        row(f"{ARCHIVED_PENDING:,} pending and {20 * ARCHIVED_PENDING:,} archived", found)


def _at_size(ganger: Ganger, data: Path, missing: int, options: argparse.Namespace) -> int:
    """Fill the queue and measure each operation; how many jobs were stored."""
    filled = scale_side.fill(ganger, data, missing, are_different=options.different)
    heading(f"With {ganger.client.info().counts['queued']:,} jobs pending")
    row("jobs stored, in batches", f"{filled.per_second:8.0f} per s")
    row("  submissions meanwhile", filled.meanwhile)
    row("  slowest of them", f"{filled.meanwhile.milliseconds(1):8.1f} ms")
    row("  longest turn of the queue", f"{filled.longest_turn * 1_000:8.1f} ms")
    row("  memory of a job, no file yet", f"{filled.bytes_per_job / 1_024:8.2f} KiB")
    for name, timings in scale_side.operations(ganger, data, options.steps):
        row(name, f"{timings}   slowest {timings.milliseconds(1):8.1f} ms")
    row("longest turn of the queue", f"{scale_side.longest_turn(ganger) * 1_000:8.1f} ms")
    stored = missing + len(filled.meanwhile.seconds)
    each = (scale_side.bytes_at_rest(ganger, data) - filled.bytes_before) / stored
    row("memory of a job at rest", f"{each / 1_024:8.2f} KiB")
    return stored


def _fairness(found: scale_side.Together) -> str:
    return f"{found.timings.milliseconds(1):8.1f} ms   {found.fewest}, {found.most}"


if __name__ == "__main__":
    sys.exit(main())
