"""Makes traces of the jobs of a queue. Pure.

A trace has nothing that a user wrote: no arguments, no names, no reasons, no results. Names of
locks and of commands become numbers; the kinds of opcodes stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..prediction.declared import forecast
from ..prediction.estimates import Estimates, key_of
from ..prediction.lock_types import LEVELS, LockType
from .traces import Numbering, Trace, TracedJob, TracedLevel, TracedLocks, TracedOpcode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..prediction.declared_needs import LookupSnapshot
    from ..prediction.lock_types import LevelForecast, LockForecast

_OP_ID = re.compile(r"OP_[A-Z0-9_]{1,60}")
_SECONDS_MAX = 1e9
_KINDS = {"node_res": "node"}
"""Levels whose locks have the names of another level."""


class RecordedOpcode(NamedTuple):
    """An opcode as the queue stores it. ``seconds``: how long it ran; None: it did not."""

    input: Mapping[str, Any]
    seconds: float | None


class RecordedJob(NamedTuple):
    """A job of the queue. ``received``: seconds since the epoch. ``depends``: ids of jobs."""

    id: int
    received: float
    priority: int
    depends: tuple[int, ...]
    ops: list[RecordedOpcode]


class _Kept(NamedTuple):
    """What is kept of a job. ``seconds``: of each opcode, as far as they are known."""

    id: int
    received: float
    priority: int
    depends: tuple[int, ...]
    ops: list[TracedOpcode]
    seconds: list[float | None]


class Recording:
    """A trace in the making. ``names``: what resolves the objects that opcodes name."""

    def __init__(self, names: LookupSnapshot | None = None) -> None:
        self._names = names
        self._numbers = Numbering()
        self._estimates = Estimates()
        self._jobs: list[_Kept] = []
        self.left_out = 0
        """Jobs that are not in the trace, because nothing says how long they run."""

    def add(self, job: RecordedJob) -> None:
        """Take in a job. Run times that it lacks will come from others of the same kind."""
        ids = [op.input.get("OP_ID") for op in job.ops]
        if not ids or not all(isinstance(one, str) and _OP_ID.fullmatch(one) for one in ids):
            self.left_out += 1
            return
        ops = [self._opcode(op.input) for op in job.ops]
        seconds = [op.seconds if _is_span(op.seconds) else None for op in job.ops]
        for op, one in zip(ops, seconds, strict=True):
            if one is not None:
                self._estimates.learn(op.key, one)
        self._jobs.append(_Kept(job.id, job.received, job.priority, job.depends, ops, seconds))

    def trace(self, slots: int) -> Trace:
        """The trace of all jobs that were taken in, in the order in which they came."""
        found: list[TracedJob] = []
        known: set[int] = set()
        self._jobs.sort(key=lambda job: (job.received, job.id))
        for job in self._jobs:
            ops = [self._timed(op, one) for op, one in zip(job.ops, job.seconds, strict=True)]
            timed = [op for op in ops if op is not None]
            if len(timed) < len(ops):
                self.left_out += 1
                continue
            found.append(
                TracedJob(
                    at=round(max(0.0, job.received - self._jobs[0].received), 3),
                    id=job.id,
                    ops=tuple(timed),
                    priority=job.priority,
                    depends=tuple(target for target in job.depends if target in known),
                )
            )
            known.add(job.id)
        return Trace(found, slots, "recorded")

    def _opcode(self, stored: Mapping[str, Any]) -> TracedOpcode:
        kind, _, command = key_of(stored).partition(" ")
        return TracedOpcode(
            op=kind,
            seconds=0.0,
            forecast=self._locks(forecast(stored, self._names)),
            command=self._numbers.number("command", command) if command else None,
        )

    def _timed(self, op: TracedOpcode, seconds: float | None) -> TracedOpcode | None:
        """The opcode with its run time, or the one of others; None: there is none."""
        if seconds is None:
            estimate = self._estimates.of_key(op.key)
            if estimate is None:
                return None
            seconds = estimate.typical
        return msgspec.structs.replace(op, seconds=round(seconds, 6))

    def _locks(self, needs: LockForecast) -> TracedLocks:
        levels = {
            name: self._level(_KINDS.get(name, name), level)
            for name in LEVELS
            if (level := getattr(needs, name)).type is not LockType.NONE
        }
        return TracedLocks(**levels, big_lock=needs.big_lock)

    def _level(self, kind: str, level: LevelForecast) -> TracedLevel:
        names, shared = (
            tuple(sorted(self._numbers.number(kind, name) for name in found))
            for found in (level.names, level.also_shared)
        )
        return TracedLevel(level.type.value, names, shared)  # type: ignore[arg-type] # never "none"


def _is_span(seconds: float | None) -> bool:
    return seconds is not None and 0 <= seconds <= _SECONDS_MAX
