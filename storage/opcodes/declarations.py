"""How an opcode is declared: its base class, its lock needs, and what its operation may call.

Holds no list of opcodes (`catalogue`) and checks no submission (`opcodes`). Users declare
their own opcodes with what is in here; import it from `ganger.storage.opcodes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec

from .. import errors, jobs

LockMode = Literal["shared", "exclusive"]

WHOLE_LEVEL = "*"
"""Stands for every name of a level, those not known yet included: the level's lock set."""

_LOCK_SET = "[lockset]"
_BGL = "BGL"

NonEmptyStr = Annotated[str, msgspec.Meta(min_length=1)]
Priority = Annotated[int, msgspec.Meta(ge=jobs.PRIORITY_MIN, le=jobs.PRIORITY_MAX)]
FinalStatus = Literal["success", "error", "canceled"]
Dependency = tuple[int, list[FinalStatus]]
ReasonEntry = tuple[str, str, int]


class OperationError(Exception):
    """An operation failed: the error's name as Ganeti spells it, and what it tells.

    Becomes the opcode's result, ``[name, [*details]]``; every detail must fit into JSON.
    """

    def __init__(self, name: str, *details: object) -> None:
        super().__init__(name, *details)
        self.name = name
        self.details = list(details)

    def __str__(self) -> str:
        return str(self.details[0]) if self.details else self.name


class KilledError(OperationError):
    """Raised once in whoever waits through `OperationContext.poll`: the job is to be killed."""

    def __init__(self) -> None:
        super().__init__("OpExecError", "killed on request")


class OperationContext(Protocol):
    """What a running operation knows about its job, and the only way it may speak or wait.

    An operation waits through `poll`, never by sleeping, so that its job goes on hearing
    messages meanwhile.
    """

    @property
    def job_id(self) -> int:
        """The job."""
        ...

    @property
    def op_index(self) -> int:
        """Place of the opcode within its job, from 0."""
        ...

    @property
    def dry_run(self) -> bool:
        """Whether the operation is to check only what it can, and to change nothing."""
        ...

    def open_input(self, name: str) -> int:
        """A descriptor to read the file ``name`` beside the job with (`OpExec.stdin_file`)."""
        ...

    def log(self, text: str | list[str], kind: str = "message") -> None:
        """Add one entry to the job log; a list is one entry too (kind ``delay-test`` has one)."""
        ...

    def log_lines(self, lines: list[str], kind: str = "message") -> None:
        """Add one entry for each line."""
        ...

    def output(self, data: bytes, stream: str = "stdout") -> int:
        """Keep ``data`` as output of the opcode, on ``stdout`` or ``stderr``, beside the job.

        Returns how many of its bytes are within the limit of the opcode's output; the others are
        dropped.
        """
        ...

    def poll(
        self, descriptors: Mapping[int, int] | Sequence[int], timeout_seconds: float | None
    ) -> list[int]:
        """Wait until one of ``descriptors`` is ready: those which are, or ``[]`` at the time limit.

        A mapping gives each descriptor its `select.poll` event mask; in a sequence all wait
        for something to read. ``None`` waits without a limit. Raises `KilledError`, once, when
        the job is to be killed: there is a short time left to clean up in.
        """
        ...

    def clock(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class LevelNeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The locks needed on one level: names to be shared, names to be had alone."""

    shared: tuple[NonEmptyStr, ...] = ()
    exclusive: tuple[NonEmptyStr, ...] = ()


_NOTHING = LevelNeeds()


class LockNeeds(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"node_res": "node-res"},
):
    """The locks an opcode needs, level by level, in lock order.

    ``*`` as the only name of a level is the whole level. As a plain value:
    ``{"node": {"shared": ["n1"], "exclusive": ["n2"]}, "instance": {"exclusive": ["*"]}}``.
    """

    cluster: LevelNeeds = _NOTHING
    instance: LevelNeeds = _NOTHING
    nodegroup: LevelNeeds = _NOTHING
    node: LevelNeeds = _NOTHING
    node_res: LevelNeeds = _NOTHING
    network: LevelNeeds = _NOTHING

    def __post_init__(self) -> None:
        for level, needs in self._levels():
            _check_level(level, needs)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> LockNeeds:
        """The needs written as a plain value; `OpcodeError` where it is malformed."""
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise errors.OpcodeError(f"locks: {error}") from error

    def to_changes(self) -> list[tuple[str, LockMode]]:
        """Every lock by its name on the wire, with its mode, in lock order.

        Whoever holds any lock shares the cluster's one big lock too, unless it is named
        itself: holding that one alone keeps everybody else out.
        """
        changes: list[tuple[str, LockMode]] = []
        for level, needs in self._levels():
            modes: dict[str, LockMode] = {_wire_name(name): "shared" for name in needs.shared}
            modes |= {_wire_name(name): "exclusive" for name in needs.exclusive}
            changes += [(f"{level}/{name}", modes[name]) for name in sorted(modes)]
        if changes and self.cluster == _NOTHING:
            changes.insert(0, (f"cluster/{_BGL}", "shared"))
        return changes

    def _levels(self) -> list[tuple[str, LevelNeeds]]:
        # Fields stand in lock order, which is not the order of the alphabet. Most levels of
        # most opcodes are left at their default.
        return [
            (level, needs)
            for level, attribute in _LEVELS
            if (needs := getattr(self, attribute)) is not _NOTHING
        ]


_LEVELS = tuple(zip(LockNeeds.__struct_encode_fields__, LockNeeds.__struct_fields__, strict=True))

NO_LOCKS = LockNeeds()
"""What an opcode needs that needs no lock; every such opcode returns this very value."""


def _wire_name(name: str) -> str:
    return _LOCK_SET if name == WHOLE_LEVEL else name


def _check_level(level: str, needs: LevelNeeds) -> None:
    for mode, names in (("shared", needs.shared), ("exclusive", needs.exclusive)):
        if not _are_names(names):
            raise ValueError(f"{level}.{mode}: expected list of non-empty names")
        if _LOCK_SET in names:
            raise ValueError(f"{level}.{mode}: the whole level is written '*', not '{_LOCK_SET}'")
    named = (*needs.shared, *needs.exclusive)
    if both := sorted(set(needs.shared) & set(needs.exclusive)):
        raise ValueError(f"{level}: {both[0]!r} is both shared and exclusive")
    if level == "cluster" and any(name != _BGL for name in named):
        raise ValueError(f"cluster: the only lock of this level is '{_BGL}'")
    if WHOLE_LEVEL in named and len(set(named)) > 1:
        raise ValueError(f"{level}: '*' covers every name and goes with no other one")


def _are_names(names: object) -> bool:
    # Needs written out in Python were not converted: a lone string would be taken apart.
    return isinstance(names, tuple | list) and all(isinstance(name, str) and name for name in names)


class Opcode(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One step of a job: its parameters as typed fields, and what is known about its kind.

    A subclass names itself (``op_id``) and declares its parameters; ``__post_init__`` may
    refuse values by a `ValueError` that starts with the parameter's name. One that brings
    its own operation defines `run`. The fields below are common to all opcodes.
    """

    op_id: ClassVar[str] = ""
    """The kind's name, ``OP_`` and capitals."""

    summary_field: ClassVar[str | None] = None
    """The parameter shown in listings."""

    secret_fields: ClassVar[tuple[str, ...]] = ()
    """Parameters whose values are never written to a job file."""

    private_fields: ClassVar[tuple[str, ...]] = ()
    """Parameters whose values are stored, but never put into a log or an error text."""

    may_start_again: ClassVar[bool] = False
    """Whether the operation may start a second time if it is not known how far it came."""

    built_in: ClassVar[bool] = False
    """Whether the operation is one of Ganger's own (the table in `actors/operations`)."""

    dry_run: bool | None = None
    debug_level: Annotated[int, msgspec.Meta(ge=0)] | None = None
    priority: Priority = 0
    depends: list[Dependency] | None = None
    comment: str | None = None
    reason: list[ReasonEntry] = []

    def lock_needs(self) -> LockNeeds:
        """The locks to be held while the operation runs; none unless a subclass says so."""
        return NO_LOCKS

    def run(self, context: OperationContext) -> object:  # noqa: ARG002 - for overriding
        """Do what the opcode is for and return its result, which must fit into JSON."""
        raise errors.OperationMissingError(f"nothing on this system can run {self.op_id}")

    @classmethod
    def has_operation(cls) -> bool:
        """Whether something can run opcodes of this kind."""
        return cls.built_in or cls.run is not Opcode.run

    @classmethod
    def summary_value(cls, fields: Mapping[str, Any]) -> str | None:
        """What a listing shows in parentheses, from stored parameters; they may be malformed."""
        if cls.summary_field is None or cls.summary_field not in fields:
            return None
        value = fields[cls.summary_field]
        if isinstance(value, list | tuple):
            return ",".join(str(item) for item in value)
        return str(value)


COMMON_FIELDS: tuple[str, ...] = Opcode.__struct_fields__
"""Names of the parameters which every opcode has."""
