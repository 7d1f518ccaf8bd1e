"""Values that messages of several receivers carry."""

from __future__ import annotations

from typing import Any

import msgspec

from ...storage.jobs.listing import JobSummary as JobSummary  # noqa: PLC0414 - a value of messages
from ...storage.prediction.lock_types import LockForecast

TrailEntry = tuple[str, str, int]
"""Source, text, nanoseconds since the epoch."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job of a submission.

    The queue appends ``reason`` to the trail of each opcode, sets ``priority`` on each opcode that
    has none, and puts ``depends`` on the first opcode. Negative ids count back within the
    submission (-1 is the job before this one). ``name``: by which users may call the job.
    """

    ops: list[dict[str, Any]]
    reason: list[TrailEntry] = []
    priority: int | None = None
    depends: list[tuple[int, list[str]]] = []
    name: str | msgspec.UnsetType = msgspec.UNSET


class PendingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the scheduler sees it: its order, and what it waits for.

    ``depends``: (job id, accepted final statuses) of the next opcode. ``limits``: the ad-hoc rate
    limits that the job's reasons name, each with the number of jobs that may run under it.
    ``forecast``: the locks of its next opcode; None: none; ``forecast_of_all``: those of all its
    opcodes, if that is more. ``question``: what the configuration store must be asked for the names
    that are missing; None: nothing. ``job_class``: jobs with the same number differ in nothing that
    filter rules see but their ids and reasons; 0: the job may be like no other one. In a
    simulation, ``is_idle``: the job has a run slot and none of its opcodes runs now;
    ``is_unbegun``: none of its opcodes has run.
    """

    id: int
    priority: int
    depends: tuple[tuple[int, tuple[str, ...]], ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    forecast: LockForecast | None = None
    forecast_of_all: LockForecast | None = None
    question: str | None = None
    job_class: int = 0
    is_idle: bool = False
    is_unbegun: bool = False


class JobToJudge(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the filter evaluator sees it.

    ``inputs``: of its opcodes. None: they have not been read. Then the evaluator reads them from
    ``body``, the text of the job's file, if it is there; from that file if ``is_in_file``; and else
    asks for them when they matter (`ReportJobs`). ``class_inputs``: those of the job's class,
    without reason trails, in one object for all its jobs; None: the job may be like no other one.
    """

    job: PendingJob
    inputs: list[dict[str, Any]] | None
    is_in_file: bool = False
    body: bytes | None = None
    class_inputs: list[dict[str, Any]] | None = None


class JobVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A job with the rule that applies to it: action and, for a limit, its number.

    ``chain``: the rule chain under which this holds; 0: the job has not been judged.
    ``is_common``: it holds for all jobs of the class.
    """

    job: PendingJob
    action: str = "ACCEPT"
    rule: str | None = None
    limit: int | None = None
    chain: int = 0
    is_common: bool = False


class ChosenUnder(msgspec.Struct, frozen=True):
    """The rules under which a job was chosen.

    ``chain``: their number; 0: unknown. ``limit``: the `RATE_LIMIT` rule and its number, in which
    the job took a place; "": none.
    """

    chain: int = 0
    limit: str = ""


class LockRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the lock list. ``owners`` and ``pending`` name jobs (or other owners).

    ``wanted``: pending jobs that will take the lock when they start, by mode; the client adds them.
    """

    name: str
    mode: str | None
    owners: list[str]
    pending: list[tuple[str, list[str]]]
    wanted: list[tuple[str, list[str]]] = []


class WaitingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that would not start or go on, and its first obstacle."""

    id: int
    kind: str
    text: str


class Remedy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The smallest change that would let a job start or go on, as data; `remedy_words` words it.

    All of these together: ``is_disk``: the disk takes writes; ``depends``: these jobs end as
    required; ``locks``: these end or give their locks back; ``rules``: these filter rules (names,
    or else UUIDs) are deleted, or an ACCEPT rule has a priority below ``accept_below``, or the time
    is ``until``;
    ``ends``: one running job of each group ends, or there are ``slots`` run slots instead of the
    ends that free one; ``needs_slots``: there are so many run slots; ``priority``: the job has this
    priority or better; ``is_turn``: no such change is known, the job starts after those before it
    (``first_ahead`` names the first).
    """

    is_disk: bool = False
    depends: list[int] = []
    locks: list[int] = []
    rules: list[str] = []
    accept_below: int | None = None
    until: str = ""
    ends: list[list[int]] = []
    slots: int | None = None
    needs_slots: int | None = None
    priority: int | None = None
    is_turn: bool = False
    first_ahead: list[int] = []
