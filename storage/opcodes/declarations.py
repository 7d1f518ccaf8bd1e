"""How an opcode is declared: its base class, its lock needs, and what its operation may call.

Holds no list of opcodes (`catalogue`) and checks no submission (`checks`). Users declare their
own opcodes with these names, which they import from `ganger` or `ganger.storage.opcodes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol, get_args

import msgspec

from .. import errors, settings

LockMode = Literal["shared", "exclusive"]

WHOLE_LEVEL = "*"
"""Stands for every name of a level, known or not: the level's lock set."""

UNKNOWN_NAMES = "?"
"""In `Opcode.lock_forecast`: stands for names that are not known before the job runs."""

_LOCK_SET = "[lockset]"
_BGL = "BGL"

NonEmptyStr = Annotated[str, msgspec.Meta(min_length=1)]
Priority = Annotated[int, msgspec.Meta(ge=settings.PRIORITY_MIN, le=settings.PRIORITY_MAX)]
FinalStatus = Literal["success", "error", "canceled"]
FINAL_STATUSES: tuple[FinalStatus, ...] = get_args(FinalStatus)

DependencyWord = Literal[
    "success",
    "error",
    "canceled",
    "failed",
    "skipped",
    "rejected",
    "killed",
    "timed-out",
    "lost",
    "always",
    "any-failed",
]
"""What a dependency may accept (`storage/jobs/outcomes`)."""

DEPENDENCY_WORDS: tuple[DependencyWord, ...] = get_args(DependencyWord)
ANY_FAILED: DependencyWord = "any-failed"
Dependency = tuple[int, list[DependencyWord]]
ReasonEntry = tuple[str, str, int]


class OperationError(Exception):
    """An operation failed: the error's name as Ganeti spells it, and its details.

    It becomes the opcode's result, ``[name, [*details]]``; JSON must be able to hold each detail.
    """

    def __init__(self, name: str, *details: object) -> None:
        super().__init__(name, *details)
        self.name = name
        self.details = list(details)

    def __str__(self) -> str:
        return str(self.details[0]) if self.details else self.name


class KilledError(OperationError):
    """`OperationContext.poll` raises this, once, when the job is to be killed."""

    def __init__(self) -> None:
        super().__init__("OpExecError", "killed on request")


class OperationContext(Protocol):
    """What a running operation knows about its job; it logs, writes output and waits only here.

    An operation waits through `poll` and never sleeps: its job handles messages meanwhile.
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
        """Whether the operation must check what it can, and change nothing."""
        ...

    def open_input(self, name: str) -> int:
        """A descriptor of the file ``name`` beside the job, to read (`OpExec.stdin_file`)."""
        ...

    def log(self, text: str | list[str], kind: str = "message") -> None:
        """Add one entry to the job log; a list is one entry too (kind ``delay-test`` has one)."""
        ...

    def log_lines(self, lines: list[str], kind: str = "message") -> None:
        """Add one entry for each line."""
        ...

    def output(self, data: bytes, stream: str = "stdout") -> int:
        """Keep ``data`` as output of the opcode, on ``stdout`` or ``stderr``, beside the job.

        Returns how many bytes were kept; the opcode's output limit drops the others.
        """
        ...

    def poll(
        self, descriptors: Mapping[int, int] | Sequence[int], timeout_seconds: float | None
    ) -> list[int]:
        """Wait until some of ``descriptors`` are ready and return these; ``[]`` at the time limit.

        A mapping gives each descriptor its `select.poll` event mask; those of a sequence wait for
        something to read. ``None`` waits without a limit. Raises `KilledError`, once, when the job
        is to be killed: the operation has a short time left to clean up.
        """
        ...

    def clock(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class LevelNeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The locks needed on one level: the names to share, and the names to hold exclusively."""

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
    """The locks that an opcode needs, level by level, in lock order.

    ``*`` as the only name of a level means the whole level. As a plain value:
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
        """The needs from a plain value; `OpcodeError` names what is malformed in it."""
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise errors.OpcodeError(f"locks: {error}") from error

    def with_node(self, name: str) -> LockNeeds:
        """These needs, and the node ``name``: shared, unless they have it already."""
        if _covers(self.node, name):
            return self
        node = msgspec.structs.replace(self.node, shared=(*self.node.shared, name))
        return msgspec.structs.replace(self, node=node)

    def renamed(self, names: Mapping[str, str]) -> LockNeeds:
        """These needs, with other names for some locks: ``{"node/web1": "0a5e..."}``.

        A lock that is then both shared and exclusive is exclusive.

        >>> LockNeeds.of({"node": {"shared": ["web1"]}}).renamed({"node/web1": "u1"}).node.shared
        ('u1',)
        """
        changed: dict[str, LevelNeeds] = {}
        for level, attribute in _LEVELS if names else ():
            own: LevelNeeds = getattr(self, attribute)
            if not any(f"{level}/{one}" in names for one in (*own.shared, *own.exclusive)):
                continue
            alone = dict.fromkeys(names.get(f"{level}/{one}", one) for one in own.exclusive)
            shared = dict.fromkeys(names.get(f"{level}/{one}", one) for one in own.shared)
            left = tuple(one for one in shared if one not in alone)
            changed[attribute] = LevelNeeds(shared=left, exclusive=tuple(alone))
        return msgspec.structs.replace(self, **changed) if changed else self

    def named(self) -> Iterator[tuple[str, str]]:
        """Level and name of each lock that has a name of its own, those of the cluster apart."""
        for level, needs in self._levels():
            if level != "cluster":
                for name in (*needs.shared, *needs.exclusive):
                    if name != WHOLE_LEVEL:
                        yield level, name

    def with_nodes(self, names: Sequence[str]) -> LockNeeds:
        """These needs, and each of these nodes as `with_node` has it."""
        needs = self
        for name in names:
            needs = needs.with_node(name)
        return needs

    def to_changes(self) -> list[tuple[str, LockMode]]:
        """Every lock by its name on the wire, with its mode, in lock order.

        Every owner of a lock shares the cluster's big lock too, unless the opcode names it: an
        exclusive owner of the big lock keeps all others out.
        """
        changes: list[tuple[str, LockMode]] = []
        if self is NO_LOCKS:
            return changes
        for level, needs in self._levels():
            modes: dict[str, LockMode] = {_wire_name(name): "shared" for name in needs.shared}
            modes |= {_wire_name(name): "exclusive" for name in needs.exclusive}
            changes += [(f"{level}/{name}", modes[name]) for name in sorted(modes)]
        if changes and self.cluster == _NOTHING:
            changes.insert(0, (f"cluster/{_BGL}", "shared"))
        return changes

    def _levels(self) -> list[tuple[str, LevelNeeds]]:
        # The fields are in lock order, which is not alphabetical. Most levels have their default.
        return [
            (level, needs)
            for level, attribute in _LEVELS
            if (needs := getattr(self, attribute)) is not _NOTHING
        ]


def _covers(needs: LevelNeeds, name: str) -> bool:
    return any(one in (*needs.shared, *needs.exclusive) for one in (name, WHOLE_LEVEL))


_LEVELS = tuple(zip(LockNeeds.__struct_encode_fields__, LockNeeds.__struct_fields__, strict=True))

NO_LOCKS = LockNeeds()
"""The needs of every opcode that needs no lock: this very object."""


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
    # msgspec does not check values that Python code gives: refuse a string in place of a list.
    return isinstance(names, tuple | list) and all(isinstance(name, str) and name for name in names)


class Opcode(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One step of a job: its parameters as typed fields, and facts about its kind.

    A subclass names itself (``op_id``) and declares its parameters; ``__post_init__`` may refuse
    values by a `ValueError` that starts with the parameter's name. A subclass with its own
    operation defines `run`. All opcodes have the fields below.
    """

    op_id: ClassVar[str] = ""
    """The kind's name, ``OP_`` and capitals."""

    summary_field: ClassVar[str | None] = None
    """The parameter shown in listings."""

    secret_fields: ClassVar[tuple[str, ...]] = ()
    """Parameters whose values are never written to a job file."""

    private_fields: ClassVar[tuple[str, ...]] = ()
    """Parameters whose values are stored, but never appear in a log or an error text."""

    later_fields: ClassVar[tuple[str, ...]] = ()
    """Parameters that earlier versions of the opcode do not know: stored unless they are defaults.

    So an earlier version can run a pending job that does not use them.
    """

    built_in: ClassVar[bool] = False
    """Whether Ganger has the operation (the table in `actors/operations/registry`)."""

    runs_in_store: ClassVar[bool] = False
    """Whether the configuration store carries it out (`actors/ganeti/opcode_runs`)."""

    asked_by: ClassVar[str] = ""
    """A package's module whose ``run`` asks the daemon for the result, in the job's process."""

    reuses_process: ClassVar[bool] = False
    """Whether the operation leaves its process as it found it, so that another job may follow.

    The process compares what the system knows of it (directory, descriptors, signals ...), but
    cannot see changes inside the interpreter: these must not remain either.
    """

    is_locked_by_store: ClassVar[bool] = False
    """Whether the configuration store names its locks; else `lock_needs` does."""

    runs_on_nodes: ClassVar[bool] = False
    """Whether its parameters ``node`` and ``nodes`` name the nodes where its operation runs."""

    dry_run: bool | None = None
    debug_level: Annotated[int, msgspec.Meta(ge=0)] | None = None
    priority: Priority = 0
    depends: list[Dependency] | None = None
    comment: str | None = None
    reason: list[ReasonEntry] = []

    def lock_needs(self) -> LockNeeds:
        """The locks that the job holds while the operation runs; none by default."""
        return NO_LOCKS

    def asks_store_for_locks(self) -> bool:
        """Whether the configuration store names the locks: not if there are surely none."""
        if not self.is_locked_by_store:
            return False
        is_declared = type(self).lock_needs is not Opcode.lock_needs
        return not (is_declared and self.lock_needs() is NO_LOCKS)

    def filled_in(self, needs: LockNeeds) -> dict[str, Any]:  # noqa: ARG002 - for overriding
        """Parameters that the job's process fills in when it knows the opcode's locks."""
        return {}

    def lock_forecast(self) -> LockNeeds:
        """The locks that the scheduler is to expect of the job: by default those of `lock_needs`.

        The name ``?`` stands for names that are not known yet (`UNKNOWN_NAMES`). The scheduler only
        orders jobs by this: it calls it when the job is submitted, and takes no lock.
        """
        return self.lock_needs()

    def run(self, context: OperationContext) -> object:  # noqa: ARG002 - for overriding
        """Run the operation and return its result, which JSON must be able to hold."""
        raise errors.OperationMissingError(f"nothing on this system can run {self.op_id}")

    @classmethod
    def has_operation(cls) -> bool:
        """Whether opcodes of this kind have an operation."""
        return cls.built_in or cls.run is not Opcode.run

    @classmethod
    def summary_value(cls, fields: Mapping[str, Any]) -> str | None:
        """What a listing shows in parentheses. The stored parameters may be malformed."""
        if cls.summary_field is None or cls.summary_field not in fields:
            return None
        value = fields[cls.summary_field]
        if isinstance(value, list | tuple):
            return ",".join(str(item) for item in value)
        return str(value)


def targets(fields: Mapping[str, Any]) -> list[str]:
    """The nodes where an opcode of these parameters runs, each once; empty: this machine."""
    node, nodes = fields.get("node"), fields.get("nodes")
    return [node] if node is not None else [*dict.fromkeys(nodes or ())]


COMMON_FIELDS: tuple[str, ...] = Opcode.__struct_fields__
"""Names of the parameters that every opcode has."""

_FACTS = frozenset(vars(Opcode)) - set(COMMON_FIELDS)
_UNUSABLE_OPTIONS = ("array_like", "omit_defaults", "tag")
_LISTS_OF_PARAMETERS = ("secret_fields", "private_fields", "later_fields")


def defaults(declared: type[Opcode]) -> list[tuple[str, object]]:
    """The parameters of a kind of opcode, each with its default, or `msgspec.NODEFAULT`."""
    names, known = declared.__struct_encode_fields__, declared.__struct_defaults__
    # The library leaves out positional parameters without a default; they come first.
    required = (msgspec.NODEFAULT,) * (len(names) - len(known))
    return list(zip(names, (*required, *known), strict=True))


def misdeclared(declared: type[Opcode]) -> str | None:
    """What is wrong with the form of a class that a user has derived from `Opcode`, if anything."""
    for name in declared.__struct_fields__:
        if name in _FACTS:
            return f"{name} is a fact about the class, not a parameter: annotate it as ClassVar"
    parameters = declared.__struct_encode_fields__
    if "OP_ID" in parameters:
        return "a parameter cannot be called OP_ID: that names the opcode"
    for option in _UNUSABLE_OPTIONS:
        if getattr(declared.__struct_config__, option):
            return f"it is declared with {option}, which opcodes cannot have"
    if declared.summary_field not in (None, *parameters):
        return f"summary_field: there is no parameter {declared.summary_field!r}"
    for fact in _LISTS_OF_PARAMETERS:
        if problem := _misnamed(getattr(declared, fact), parameters):
            return f"{fact}: {problem}"
    return None


def _misnamed(names: object, parameters: tuple[str, ...]) -> str | None:
    # ("password") is a text, and each of its characters would pass for a name.
    if not isinstance(names, tuple | list | set | frozenset):
        return f"expected a tuple of names, such as ('password',), got {names!r}"
    unknown = next((name for name in names if name not in parameters), None)
    return None if unknown is None else f"there is no parameter {unknown!r}"
