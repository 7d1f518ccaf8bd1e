"""D11: whatever comes in at a listener, the daemon neither stops nor grows without bound.

Most frames go through the real listener and the actors behind it in this process, with a queue
directory of their own. Thousands go to a real daemon from a sender that reads its answers, beside
others that do not; and every attack of a list is tried on a real daemon of its own.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable
from pathlib import Path

from tests.torture.fuzz.floods import run_floods
from tests.torture.fuzz.in_process import fuzz_listeners
from tests.torture.fuzz.through_sockets import BATCH_FRAMES, GROWTH_MAX_BYTES, fuzz_daemon
from tests.torture.tally import Tally

DAEMON_SHARE = 20
"""One of so many frames goes to a real daemon."""
DAEMON_FRAMES_MAX = 30_000
LONG_FRAMES = 100_000
"""From so many frames on, the attacks that take long are tried too."""


def run_fuzzed_frames(count: int, seed: int, folder: Path) -> Tally:
    """Send ``count`` frames, of which some thousands to a real daemon; then every attack."""
    tally = Tally()
    real = min(DAEMON_FRAMES_MAX, count // DAEMON_SHARE)
    before = _peak_bytes()
    _judge(fuzz_listeners(count - real, seed, _made(folder / "listeners")), 1, seed, tally)
    grown = _peak_bytes() - before
    tally.figures["listener"] = f"{grown / 2**20:+.0f} MiB"
    if grown > GROWTH_MAX_BYTES:
        tally.failed(f"seed {seed}: the listener has grown by {grown:,} bytes")
    _judge(fuzz_daemon(real, seed, _made(folder / "daemon")), BATCH_FRAMES, seed, tally)
    run_floods(seed, _made(folder / "floods"), tally, has_long=count >= LONG_FRAMES)
    return tally


def _judge(problems: Iterable[str], frames_each: int, seed: int, tally: Tally) -> None:
    """Count what each problem, or none, stands for."""
    for problem in problems:
        if problem:
            tally.failed(f"seed {seed} {problem}")
        else:
            tally.injected += frames_each
            tally.survived += frames_each


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _peak_bytes() -> int:
    """The highest use of memory by this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
