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
_CHANGES = 21
_REST_SECONDS = 0.03
"""A daemon at rest takes less processor time in half a second."""

SHAPES: dict[str, dict[str, Any]] = {
    "one that looks at opcodes": {
        "priority": 1,
        "predicates": [["opcode", ["=", "OP_ID", "OP_EXEC"]]],
        "action": "PAUSE",
    },
    "one that looks at locks": {
        "priority": 1,
        "predicates": [["lock", ["=", "touches", "node/bench"]]],
        "action": "PAUSE",
    },
    "one that looks at ids": {
        "priority": 1,
        "predicates": [["jobid", ["<", "id", 0]]],
        "action": "PAUSE",
    },
}
"""Rules that look at each job, and apply to none."""


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


class Changes(NamedTuple):
    """Timings of rules that come into force or go, and the processor time for each of them."""

    added: Timings
    changed: Timings
    deleted: Timings
    processor_seconds: float


def changes(ganger: Ganger, rule: dict[str, Any]) -> Changes:
    """Add the rule, change it and delete it, again and again, until the daemon has come to rest."""
    client, found = ganger.client, Changes(Timings(), Timings(), Timings(), 0.0)
    before = _at_rest(ganger)
    for _ in range(_CHANGES):
        with found.added.one():
            uuid = client.add_filter(**rule)
        with found.changed.one():
            client.add_filter(**rule | {"priority": 2}, uuid=uuid)
        with found.deleted.one():
            client.delete_filter(uuid)
    each = (_at_rest(ganger) - before) / (3 * _CHANGES)
    return found._replace(processor_seconds=each)


def _at_rest(ganger: Ganger) -> float:
    """The daemon's processor time when it does nothing any more."""
    found = ganger.processor_seconds()
    while True:
        time.sleep(0.5)
        before, found = found, ganger.processor_seconds()
        if found - before < _REST_SECONDS:
            return found
