"""The rounds: each peer is started alone, measured and stopped, again and again in turn."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from . import driver
from .catalogue import turn
from .results import Measured, Round, quantile_ms
from .tables import number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from .catalogue import Peer

PAUSE_SECONDS = 0.02
CLIENTS = 32
STEP_SECONDS = 120
"""The longest that one step may take."""
LIST_SECONDS = 240

P50, P99 = 0.5, 0.99
SHORT = (
    ("jobs_per_second", "{} jobs/s"),
    ("idle_p50", "idle {} ms"),
    ("submit_p50", "submit {} ms"),
    ("crowd_per_second", f"{CLIENTS} clients {{}}/s"),
    ("listed_seconds", "list {} s"),
)


def measure(peers: list[Peer], options: argparse.Namespace) -> list[Measured]:
    """Measure all peers in interleaved rounds; who fails once is left out of later rounds.

    All files are removed at the end: for minutes after many were deleted, ext4 makes new ones
    slowly, for whichever queue comes next.
    """
    with tempfile.TemporaryDirectory(
        prefix="ganger-peers-", dir=options.dir, ignore_cleanup_errors=True
    ) as name:
        # PostgreSQL runs as another user, who must be able to pass.
        Path(name).chmod(0o711)
        return _measured(peers, options, Path(name))


def _measured(peers: list[Peer], options: argparse.Namespace, folder: Path) -> list[Measured]:
    measured = {peer.name: Measured(peer.name) for peer in peers}
    for count in range(options.rounds):
        # A list that takes too long then costs no other figure.
        listed = options.listed if count == options.rounds - 1 else 0
        for peer in turn(peers, count):
            one = measured[peer.name]
            if one.problem:
                continue
            print(f"round {count + 1} of {options.rounds}, {peer.title}: ", end="", flush=True)
            begin = time.monotonic()
            own = folder / f"{peer.name}-{count}"
            own.mkdir()
            own.chmod(0o711)
            found = _round(peer, one, options, listed, own)
            if found is not None:
                one.rounds.append(found)
            print(f"{_short(found, one)} ({time.monotonic() - begin:.0f} s)", flush=True)
    return list(measured.values())


def _round(
    peer: Peer, measured: Measured, options: argparse.Namespace, listed: int, folder: Path
) -> Round | None:
    """Measure one peer once; what kept it from that is noted in ``measured``."""
    figures: dict[str, float] = {}
    try:
        with driver.SideProcess(peer, folder) as side:
            measured.versions = side.ask("start", STEP_SECONDS)
            for found in _steps(side, peer, options, listed):
                figures.update(found)
    except driver.SideError as error:
        measured.problem = str(error)
        measured.has_failed = not isinstance(error, driver.SideMissingError)
    return Round(**figures) if figures else None


def _steps(
    side: driver.SideProcess, peer: Peer, options: argparse.Namespace, listed: int
) -> Iterator[dict[str, float]]:
    """All steps; those that leave held jobs behind come last."""
    seconds = side.ask("idle", STEP_SECONDS, count=options.idle, pause_seconds=PAUSE_SECONDS)
    yield {"idle_p50": quantile_ms(seconds, P50), "idle_p99": quantile_ms(seconds, P99)}
    yield {"jobs_per_second": side.ask("throughput", STEP_SECONDS, count=options.jobs)}
    most = options.jobs if peer.pending_max is None else peer.pending_max // 2
    seconds = side.ask("submissions", STEP_SECONDS, count=min(options.jobs // 2, most))
    yield {"submit_p50": quantile_ms(seconds, P50), "submit_p99": quantile_ms(seconds, P99)}
    count = min(options.jobs * 3, most) if peer.pending_max else options.jobs * 3
    yield {"crowd_per_second": side.ask("crowd", STEP_SECONDS, clients=CLIENTS, count=count)}
    if listed and peer.pending_max is None:
        found = side.ask("listing", LIST_SECONDS, count=listed)
        if found is not None:
            yield {"listed_seconds": found["seconds"], "stored_per_second": found["stored"]}


def _short(found: Round | None, measured: Measured) -> str:
    parts = []
    if found is not None:
        values = [(getattr(found, figure), text) for figure, text in SHORT]
        parts = [text.format(number(value)) for value, text in values if value is not None]
    if measured.problem:
        parts.append(measured.problem)
    return ", ".join(parts)
