"""Campaigns in the simulated world (`world`): any faults, jumps of the clock, lost wake-ups.

Each case is a world of its own, made from the seed, the campaign and the number of the case:

    python -m tests.torture.simulation.playing faults SEED CASE

plays one again and prints everything that happened in it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from tests.torture.simulation.core import Character
from tests.torture.simulation.world import World, playground, world
from tests.torture.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DIFFERENCES_SHOWN = 2


def run_simulated_faults(count: int, seed: int, folder: Path) -> Tally:
    """Any faults, then none: what must never be is not, and everything drains.

    In every fifth world messages come twice (`repeating`), in every fifth one jobs change the
    configuration, in every fifth one Ganeti's tools are at work (`tools`), and in every fifth one
    jobs are purged.
    """
    return _play_all(("faults", "repeats", "changes", "tools", "purges"), count, seed, folder)


def run_lost_wake_ups(count: int, seed: int, folder: Path) -> Tally:
    """Whenever nothing is on its way, whatever could go on has gone on.

    The daemon hears of everything by messages, by the ends of channels and by pidfds; it
    watches no files, so there is no file event that could be dropped. At rest no job may be
    startable, no lock grantable, no dependant free, no dead process unnoticed: whatever made
    it ready, no timer was needed.
    """
    return _play_all(("wake-ups",), count, seed, folder)


def run_clock_jumps(count: int, seed: int, folder: Path) -> Tally:
    """The wall clock jumps by up to 30 days; everything happens when it would have otherwise.

    Each world is played twice, with jumps and without. Every message, start and end must come
    at the same moment of the monotonic clock and in the same order; only recorded time stamps
    may differ.
    """
    tally = Tally()
    jumps = 0
    with playground(folder) as root:
        for case in range(count):
            name = _name("clock", seed, case)
            character = _CHARACTERS["clock"](random.Random(name))
            plain, _ = _traced(character, name, root, jumps=None)
            jumped, made = _traced(character, name, root, jumps=random.Random(f"{name} jumps"))
            jumps += made.injected["clock jumped"]
            _judge_jumps(tally, made, plain, jumped, f"seed {seed} case {case}")
    tally.figures["jumps"] = str(jumps)
    return tally


def play(kind: str, seed: int, case: int, root: Path, *, is_traced: bool = False) -> World:
    """One case, played to its end."""
    name = _name(kind, seed, case)
    with world(_CHARACTERS[kind](random.Random(name)), name, root) as made:
        made.trace = [] if is_traced else None
        made.play()
    return made


def _play_all(kinds: Sequence[str], count: int, seed: int, folder: Path) -> Tally:
    tally = Tally()
    figures: Counter[str] = Counter()
    with playground(folder) as root:
        for case in range(count):
            kind = kinds[case % len(kinds)]
            made = play(kind, seed, case, root)
            figures += made.injected
            figures["looked at rest"] += made.oracle.quiet_checks
            figures["held back at rest"] += made.oracle.held_back
            figures["opcodes started"] += made.oracle.starts.total()
            _judge(tally, made, f"{kind} seed {seed} case {case}")
    if figures["looked at rest"] < count:
        # Then something is always on its way for the oracle, and its best eye is shut.
        tally.faults.append(f"{count} worlds were at rest {figures['looked at rest']} times only")
    tally.figures.update({what: str(number) for what, number in sorted(figures.items())})
    return tally


def _judge(tally: Tally, made: World, text: str) -> None:
    oracle = made.oracle
    if made.problems:
        text = f"{text}: {'; '.join(made.problems[:3])}"
    if oracle.lost or oracle.doubled or oracle.conflicting or not made.problems:
        tally.judge(text, lost=oracle.lost, doubled=oracle.doubled, conflicting=oracle.conflicting)
    else:
        tally.failed(text)


def _judge_jumps(tally: Tally, made: World, plain: list[str], jumped: list[str], text: str) -> None:
    differences = [
        f"{one!r} became {other!r}"
        for one, other in zip(plain, jumped, strict=False)
        if one != other
    ]
    if differences or len(plain) != len(jumped):
        tally.failed(f"clock {text}: {'; '.join(differences[:DIFFERENCES_SHOWN])}")
    else:
        _judge(tally, made, f"clock {text}")


def _traced(
    character: Character, name: str, root: Path, *, jumps: random.Random | None
) -> tuple[list[str], World]:
    with world(character, name, root) as made:
        made.trace = []
        made.jumps = jumps
        made.play()
    return made.trace, made


def _name(kind: str, seed: int, case: int) -> str:
    return f"{seed} {kind} {case}"


# What kinds of worlds there are.


def _any_faults(dice: random.Random) -> Character:
    harshness = dice.choice((0.3, 1.0, 3.0, 8.0))
    return Character(
        is_causal=dice.random() < 0.75,
        delay_seconds=dice.choice((0.005, 0.05, 0.5)),
        slow_chance=dice.choice((0.0, 0.1, 0.5)),
        jobs=dice.randint(2, 10),
        actions=dice.randint(4, 16),
        slots=dice.randint(1, 4),
        has_late_dependencies=dice.random() < 0.3,
        segment_bytes=dice.choice((4_000, 16 * 1024 * 1024)),
        crash_chance=0.003 * harshness,
        daemon_chance=0.0008 * harshness,
        job_chance=0.006 * harshness,
        disturbance_chance=0.004 * harshness,
        blows=dice.choice((0, 1, 2, 6)),
        wall_pace=dice.choice((1.0, 0.001)),
        focus=dice.choice(("", "job_queue", "executor", "lock_manager", "scheduler")),
        quiet_seconds=dice.choice((0.5, 5.0, 20.0)),
        has_large_jobs=dice.random() < 0.15,
        reuses_processes=dice.random() < 0.75,
        holds_back=dice.random() < 0.75,
        has_waiters=dice.random() < 0.5,
        has_alike_jobs=dice.random() < 0.4,
    )


def _repeating(dice: random.Random) -> Character:
    """Any faults, and messages that come twice."""
    return msgspec.structs.replace(_any_faults(dice), repeat_chance=dice.choice((0.02, 0.2, 1.0)))


def _changing(dice: random.Random) -> Character:
    """Any faults, repeated messages, and jobs that change the configuration."""
    return msgspec.structs.replace(
        _repeating(dice),
        has_tag_jobs=True,
        focus=dice.choice(("", "config_store", "config_store", "executor", "lock_manager")),
    )


def _with_tools(dice: random.Random) -> Character:
    """Some requests come in at LUXI's socket."""
    return msgspec.structs.replace(
        _any_faults(dice),
        tool_actions=dice.choice((5, 20)),
        focus=dice.choice(("", "luxi_listener", "job_queue")),
    )


def _purging(dice: random.Random) -> Character:
    """Any faults, repeated messages, and jobs that are purged meanwhile."""
    return msgspec.structs.replace(
        _repeating(dice),
        purges=dice.randint(2, 12),
        focus=dice.choice(("", "job_queue", "job_queue", "executor")),
    )


def _wake_ups(dice: random.Random) -> Character:
    """Few slots, many wishes, and faults that are far enough apart to see what each did."""
    return msgspec.structs.replace(
        _any_faults(dice),
        is_causal=True,
        jobs=dice.randint(6, 12),
        actions=dice.randint(12, 24),
        slots=dice.randint(1, 3),
        crash_chance=0.001,
        daemon_chance=0.0003,
        job_chance=0.002,
        disturbance_chance=0.006,
        blows=dice.choice((0, 1, 4)),
        focus="",
        quiet_seconds=5.0,
    )


def _steady(dice: random.Random) -> Character:
    """Hardly anything goes wrong but the clock; in every third world other things do too."""
    character = _wake_ups(dice)
    if dice.random() < 0.3:
        return character
    return msgspec.structs.replace(
        character,
        crash_chance=0.0,
        daemon_chance=0.0,
        job_chance=0.0,
        disturbance_chance=0.0,
        blows=0,
    )


_CHARACTERS: dict[str, Callable[[random.Random], Character]] = {
    "faults": _any_faults,
    "repeats": _repeating,
    "changes": _changing,
    "tools": _with_tools,
    "purges": _purging,
    "wake-ups": _wake_ups,
    "clock": _steady,
}


def main() -> int:
    """Play one case again and show it."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.simulation.playing")
    parser.add_argument("kind", choices=sorted(_CHARACTERS))
    parser.add_argument("seed", type=int)
    parser.add_argument("case", type=int)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, playground(Path(folder)) as root:
        made = play(wanted.kind, wanted.seed, wanted.case, root, is_traced=True)
    print("\n".join(made.trace or ()))
    print(made.log.getvalue(), file=sys.stderr)
    return 1 if made.problems else 0


if __name__ == "__main__":
    sys.exit(main())
