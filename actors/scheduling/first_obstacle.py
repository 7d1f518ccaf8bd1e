"""The first thing that holds a pending job back. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...transport import remedy_words

if TYPE_CHECKING:
    from ...transport.messages import QueuePosition

_JOBS_NAMED = 3


def first_obstacle(position: QueuePosition) -> tuple[str, str, str]:
    """Its kind, the obstacle in words, and the lock, rule or first jobs that it is about.

    In the order in which the scheduler looks at obstacles.
    """
    if position.open:
        return "dependency", f"waits for {', '.join(map(str, position.open))}", _jobs(position.open)
    if position.full:
        full = position.full[0]
        runs = "runs" if full.size == 1 else "run"
        return "limit", f"{full.name}: {full.size} {runs} already", full.name.removeprefix("rule:")
    if position.action in ("PAUSE", "REJECT"):
        what = "paused" if position.action == "PAUSE" else "rejected"
        return "rule", f"{what} by {position.rule}", position.rule or ""
    if position.held_back:
        held_back = position.held_back[0]
        return "lock", remedy_words.taken(held_back), held_back.lock
    if len(position.running) >= position.slots:
        return "slots", remedy_words.slots_taken(position.slots), ""
    return "order", "others are looked at first", ""


def _jobs(ids: list[int]) -> str:
    return ", ".join(map(str, ids[:_JOBS_NAMED]))
