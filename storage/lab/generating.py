"""Generates traces of jobs, as a cluster might see them. Pure: chance comes in as an argument.

The run times of a kind of opcode are spread log-normally around its median, as those of real jobs.
Jobs come in a Poisson stream whose rate makes the run slots as busy as the kind of trace says.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ..wording import counted
from .traces import NO_LOCKS, Trace, TracedJob, TracedLevel, TracedLocks, TracedOpcode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")


class Chance(Protocol):
    """Draws by chance: a `random.Random`."""

    def random(self) -> float:
        """A number from 0 up to 1."""

    def uniform(self, a: float, b: float) -> float:
        """A number between these."""

    def gauss(self, mu: float, sigma: float) -> float:
        """A number around ``mu``."""

    def expovariate(self, lambd: float) -> float:
        """A pause between the events of a Poisson stream with this rate."""

    def randrange(self, start: int) -> int:
        """A whole number from 0 up to below ``start``."""

    def choice(self, seq: Sequence[_T]) -> _T:
        """One of these."""


SLOTS = 20
"""Run slots of a generated trace."""

HOT_SHARE = 0.85
"""Part of the jobs of a hot trace that wait for its one resource: 17,000 of 20,000."""

_HOT = 1
_BUSY_UNCONTENDED, _BUSY_CONTENDED, _BUSY_MIXED = 0.7, 0.5, 0.5
_NODES_FEW, _NODES_SOME, _NODES_MANY = 24, 40, 2_000
_INSTANCES = 400


class _Kind(NamedTuple):
    """A kind of opcode: its median run time in seconds, and its spread."""

    op: str
    median: float
    spread: float
    command: int | None = None

    def seconds(self, chance: Chance) -> float:
        """A run time, to the millisecond."""
        return round(self.median * math.exp(chance.gauss(0, self.spread)), 3)

    @property
    def mean(self) -> float:
        """The mean of its run times."""
        return self.median * math.exp(self.spread**2 / 2)


_SHUTDOWN = _Kind("OP_INSTANCE_SHUTDOWN", 8, 0.7)
_STARTUP = _Kind("OP_INSTANCE_STARTUP", 6, 0.5)
_REBOOT = _Kind("OP_INSTANCE_REBOOT", 15, 0.5)
_MIGRATE = _Kind("OP_INSTANCE_MIGRATE", 40, 0.8)
_REPLACE_DISKS = _Kind("OP_INSTANCE_REPLACE_DISKS", 120, 0.9)
_VERIFY_GROUP = _Kind("OP_CLUSTER_VERIFY_GROUP", 20, 0.4)
_TAGS = _Kind("OP_TAGS_SET", 0.2, 0.3)
_REMOVE_NODE = _Kind("OP_NODE_REMOVE", 5, 0.5)
_CHANGES = (
    (_SHUTDOWN,),
    (_STARTUP,),
    (_REBOOT,),
    (_SHUTDOWN, _STARTUP),
    (_MIGRATE,),
    (_SHUTDOWN, _REPLACE_DISKS, _STARTUP),
)
_COMMANDS = [_Kind("OP_EXEC", 2.0 * number, 0.3 + 0.1 * number, number) for number in range(1, 9)]


def _exclusive(*names: int) -> TracedLevel:
    return TracedLevel("exclusive", tuple(sorted(set(names))))


def _opcode(kind: _Kind, chance: Chance, forecast: TracedLocks, **more: Any) -> TracedOpcode:  # noqa: ANN401
    return TracedOpcode(
        op=kind.op, command=kind.command, seconds=kind.seconds(chance), forecast=forecast, **more
    )


def _uncontended(jobs: int, chance: Chance) -> list[TracedJob]:
    """Commands on so many nodes that two hardly ever meet."""

    def ops() -> tuple[TracedOpcode, ...]:
        locks = TracedLocks(node=_exclusive(chance.randrange(_NODES_MANY)), big_lock="shared")
        return (_opcode(chance.choice(_COMMANDS), chance, locks),)

    return _stream(jobs, chance, ops, _BUSY_UNCONTENDED)


def _contended(jobs: int, chance: Chance) -> list[TracedJob]:
    """Changes of instances on a few nodes: most jobs meet others. The nodes are known."""
    return _stream(jobs, chance, lambda: _change_of_disks(chance), _BUSY_CONTENDED)


def _backlog(jobs: int, chance: Chance) -> list[TracedJob]:
    """The work of a contended trace, all submitted at once."""
    return [
        TracedJob(at=0.0, id=number, ops=_change_of_disks(chance)) for number in range(1, jobs + 1)
    ]


def _change_of_disks(chance: Chance) -> tuple[TracedOpcode, ...]:
    kind = chance.choice((_REBOOT, _MIGRATE, _MIGRATE, _REPLACE_DISKS))
    instance = chance.randrange(_NODES_FEW * 6)
    if kind is _REBOOT:
        return (_opcode(kind, chance, _locks_of(instance)),)
    return (_opcode(kind, chance, _locks_of(instance, _exclusive(*_nodes_of(instance)))),)


def _locks_of(instance: int, nodes: TracedLevel | None = None) -> TracedLocks:
    own = _exclusive(instance)
    return TracedLocks(instance=own, node=nodes, node_res=nodes, big_lock="shared")


def _nodes_of(instance: int, nodes: int = _NODES_FEW) -> tuple[int, int]:
    """The two nodes of an instance, of so many."""
    first = instance % nodes
    return first, (first + 1 + instance // nodes) % nodes


def _mixed(jobs: int, chance: Chance) -> list[TracedJob]:
    """The work of a cluster: commands, reads, changes with one to three opcodes, a rare BGL."""

    def ops() -> tuple[TracedOpcode, ...]:
        draw = chance.random()
        if draw < 0.4:  # noqa: PLR2004 - the shares of the kinds
            return (_opcode(chance.choice(_COMMANDS), chance, NO_LOCKS),)
        if draw < 0.5:  # noqa: PLR2004
            whole = TracedLevel("all_shared")
            locks = TracedLocks(nodegroup=_shared(1), node=whole, big_lock="shared")
            return (_opcode(_VERIFY_GROUP, chance, locks),)
        if draw < 0.505:  # noqa: PLR2004
            return (_opcode(_REMOVE_NODE, chance, TracedLocks(big_lock="exclusive")),)
        if draw < 0.6:  # noqa: PLR2004
            return (_opcode(_TAGS, chance, _locks_of(_instance(chance))),)
        return _changes_of(_instance(chance), chance)

    return _stream(jobs, chance, ops, _BUSY_MIXED)


def _shared(*names: int) -> TracedLevel:
    return TracedLevel("shared", tuple(sorted(set(names))))


def _instance(chance: Chance) -> int:
    """Some instances are changed far more often than others."""
    return int(chance.random() ** 2 * _INSTANCES)


def _changes_of(instance: int, chance: Chance) -> tuple[TracedOpcode, ...]:
    """One to three changes of an instance; nodes are unknown before its lock is held."""
    own = _locks_of(instance)
    foreseen = _locks_of(instance, TracedLevel("unknown_exclusive"))
    taken = _locks_of(instance, _exclusive(*_nodes_of(instance, _NODES_SOME)))
    kinds = chance.choice(_CHANGES)
    return tuple(
        _opcode(kind, chance, foreseen, locks=taken)
        if kind in (_MIGRATE, _REPLACE_DISKS)
        else _opcode(kind, chance, own)
        for kind in kinds
    )


def _hot(jobs: int, chance: Chance) -> list[TracedJob]:
    """Most jobs want the same node, and came first; free work comes as long as they last."""
    waiters = round(jobs * HOT_SHARE)
    kind = _Kind("OP_EXEC", 1.0, 0.3, 1)
    locks = TracedLocks(node=_exclusive(_HOT), big_lock="shared")
    made = [
        TracedJob(at=round(number * 0.001, 3), id=number, ops=(_opcode(kind, chance, locks),))
        for number in range(1, waiters + 1)
    ]
    lasting = waiters * kind.mean
    moments = sorted(round(chance.uniform(0, lasting), 3) for _ in range(jobs - waiters))
    for number, moment in enumerate(moments, waiters + 1):
        op = _opcode(chance.choice(_COMMANDS), chance, NO_LOCKS)
        made.append(TracedJob(at=moment, id=number, ops=(op,)))
    made.sort(key=lambda job: job.at)
    return [
        TracedJob(at=job.at, id=number, ops=job.ops, priority=job.priority)
        for number, job in enumerate(made, 1)
    ]


def _stream(
    jobs: int, chance: Chance, ops: Callable[[], tuple[TracedOpcode, ...]], busy: float
) -> list[TracedJob]:
    """Jobs with these opcodes, so close that their work takes this part of the run slots."""
    made = [ops() for _ in range(jobs)]
    work = sum(op.seconds for job in made for op in job)
    pause = work / max(1, jobs) / SLOTS / busy
    moment = 0.0
    found = []
    for number, one in enumerate(made, 1):
        moment += chance.expovariate(1 / pause) if pause else 0.0
        found.append(TracedJob(at=round(moment, 3), id=number, ops=one))
    return found


_KINDS = {
    "uncontended": _uncontended,
    "contended": _contended,
    "backlog": _backlog,
    "mixed": _mixed,
    "hot": _hot,
}
KINDS = tuple(_KINDS)
"""The kinds of traces: `generate`."""


def generate(kind: str, jobs: int, chance: Chance) -> Trace:
    """A trace of this kind (one of `KINDS`) with this number of jobs.

    The same chance gives the same trace.
    """
    return Trace(_KINDS[kind](jobs, chance), SLOTS, f"generated: {kind}, {counted(jobs, 'job')}")
