"""Measures filter rules: twenty beside none, and a new one on a long queue."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .figures import Timings
from .ganger_side import NO_OP, Ganger

if TYPE_CHECKING:
    from collections.abc import Iterator

RULES = 20
_BATCH = 5_000


def rules(count: int = RULES) -> list[dict[str, Any]]:
    """Realistic rules that look at every job and do not apply to a no-op."""
    shapes: list[tuple[list[Any], Any]] = [
        (["opcode", ["=~", "OP_ID", "^OP_INSTANCE_(MIGRATE|FAILOVER){n}$"]], "PAUSE"),
        (["reason", ["=~", "reason", "maintenance {n}"]], "PAUSE"),
        (["jobid", ["<", "id", 0]], "REJECT"),
        (["opcode", ["&", ["=", "OP_ID", "OP_EXEC"], ["=", "cwd", "/{n}"]]], ["RATE_LIMIT", 5]),
    ]
    found = []
    for number in range(count):
        predicate, action = shapes[number % len(shapes)]
        found.append({"priority": number, "predicates": [_numbered(predicate, number)]})
        found[-1]["action"] = action
    return found


def _numbered(value: Any, number: int) -> Any:  # noqa: ANN401 - a part of a predicate
    if isinstance(value, list):
        return [_numbered(each, number) for each in value]
    return value.replace("{n}", str(number)) if isinstance(value, str) else value


@contextmanager
def twenty_rules(ganger: Ganger) -> Iterator[None]:
    """Keep the rules in force within the block."""
    uuids = [ganger.client.add_filter(**rule) for rule in rules()]
    yield
    for uuid in uuids:
        ganger.client.delete_filter(uuid)


class LongQueue(NamedTuple):
    """Jobs stored per second, and timings of three kinds of calls.

    ``after``: submissions right after the jobs were stored; ``added``: new rules; ``calls``:
    submissions while the daemon compares the new rules with all jobs.
    """

    stored_per_second: float
    after: Timings
    added: Timings
    calls: Timings


def long_queue(ganger: Ganger, pending: int, seconds: float = 5.0) -> LongQueue:
    """Store ``pending`` jobs that a rule pauses, then add rules that look at each of them."""
    client = ganger.client
    holding = client.add_filter(priority=1_000, predicates=[], action="PAUSE", reason="bench")
    begin = time.perf_counter()
    for start in range(0, pending, _BATCH):
        client.submit_many([[NO_OP]] * min(_BATCH, pending - start))
    stored = pending / (time.perf_counter() - begin)
    added, calls, after = Timings(), Timings(), Timings()
    end = time.perf_counter() + 2 * seconds
    while time.perf_counter() < end:
        with after.one():
            client.submit(NO_OP)
    uuids = []
    for rule in rules(5):
        with added.one():
            uuids.append(client.add_filter(**rule))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        with calls.one():
            client.submit(NO_OP)
    for uuid in uuids:
        client.delete_filter(uuid)
    client.add_filter(priority=0, predicates=[], action="REJECT", reason="bench ends", uuid=holding)
    return LongQueue(stored, after, added, calls)
