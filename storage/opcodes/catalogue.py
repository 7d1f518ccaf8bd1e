"""All opcodes: Ganger's own, those of installed families, and users' plug-ins.

A family makes the type of an opcode when it is first asked for: it is imported when an opcode is
none of the others, so that importing this module is cheap. Opcodes with a built-in operation are
written out as classes.

A new one of Ganger's is a class here and a line in `_OWN`, an operation in
`actors.operations.registry`, and a line in `DECLARED` of `storage.prediction.own_locks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

import msgspec

from .. import entry_points, errors
from ..wording import text_of
from .declarations import (
    NO_LOCKS,
    LevelNeeds,
    LockNeeds,
    NonEmptyStr,
    Opcode,
    misdeclared,
)
from .fields import check_targets, from_base64, locks_on_nodes
from .interrupts import is_ctrl_c
from .node_opcodes import OpNodeCall, OpNodeCopy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint, EntryPoints

ENTRY_POINT_GROUP = "ganger.opcodes"
"""Installed packages name their opcode classes under this entry point group."""

INVALID_SUMMARY = "INVALID_OP"
"""Summary of an entry without a usable ``OP_ID``."""

MASTER_NODE = "master"
"""Stands for the master node in lock names, as names of nodes are not resolved yet."""

ExitCode = Annotated[int, msgspec.Meta(ge=0, le=255)]


class OpExec(Opcode, kw_only=True):
    """Run a command, without a shell, under declared locks."""

    op_id: ClassVar[str] = "OP_EXEC"
    runs_on_nodes: ClassVar[bool] = True
    private_fields: ClassVar[tuple[str, ...]] = ("env", "stdin", "stdin_base64")
    later_fields: ClassVar[tuple[str, ...]] = (
        "leave_running",
        "stdin_base64",
        "node",
        "user",
        "lost_after",
        "lock_uuids",
        "nodes",
    )
    built_in: ClassVar[bool] = True
    reuses_process: ClassVar[bool] = True

    argv: Annotated[list[str], msgspec.Meta(min_length=1)]
    """The program and its arguments."""

    env: dict[NonEmptyStr, str] = {}
    """Variables set on top of a clean environment."""

    cwd: NonEmptyStr | None = None
    """Absolute path of the directory to run in; the root directory if unset."""

    stdin: str | None = None
    """The command's standard input; empty if unset."""

    stdin_base64: str | None = None
    """The command's standard input instead, in Base64, if it is no text."""

    stdin_file: NonEmptyStr | None = None
    """The file beside the job that holds a large ``stdin`` instead. The queue sets it."""

    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Seconds after which the job ends the command."""

    locks: LockNeeds = NO_LOCKS
    """The locks that the job holds while the command runs."""

    node: NonEmptyStr | None = None
    """The node to run it on; this machine if neither this nor ``nodes`` is set."""

    nodes: list[NonEmptyStr] | None = None
    """The nodes to run it on, at the same time: the result is that of each by its name."""

    user: NonEmptyStr | None = None
    """The user to run it as; the daemon's own if unset."""

    lost_after: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Seconds that the node may be silent; then the job ends, and says that it is not known whether
    the command still runs. It waits for the node, however long it takes, if unset."""

    lock_uuids: dict[NonEmptyStr, NonEmptyStr] | None = None
    """The UUIDs of what `locks` and `node` name (``node/web1``), by which Ganeti's opcodes lock.
    The queue sets it, as the configuration is when the job comes."""

    leave_running: bool = False
    """Whether processes that left the command's process group may run on when it has ended."""

    ok_exit_codes: Annotated[list[ExitCode], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: [0]
    )
    """Exit codes that mean success."""

    output_limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Bytes of output to keep, before compression; 1 GiB if unset. The rest is dropped."""

    def __post_init__(self) -> None:
        check_targets(self.node, self.nodes)
        if not self.argv[0]:
            raise ValueError("argv: the program's name is empty")
        if any("\0" in text for text in self.argv):
            raise ValueError("argv: expected text without NUL characters")
        if any("\0" in name or "=" in name or "\0" in value for name, value in self.env.items()):
            raise ValueError("env: expected names without '=', and no NUL characters")
        if self.cwd is not None and (not self.cwd.startswith("/") or "\0" in self.cwd):
            raise ValueError("cwd: expected an absolute path")
        if [self.stdin, self.stdin_base64, self.stdin_file].count(None) < _STDINS - 1:
            raise ValueError("stdin: expected one of stdin, stdin_base64 and stdin_file")
        if self.stdin_base64 is not None:
            self.stdin_bytes()

    def stdin_bytes(self) -> bytes | None:
        """The command's standard input, if it is not in a file; None: it is empty."""
        if self.stdin_base64 is None:
            return None if self.stdin is None else self.stdin.encode()
        return from_base64(self.stdin_base64)

    def lock_needs(self) -> LockNeeds:
        """The locks that the submitter declared, and the node where it runs, shared at least."""
        nodes = self.nodes or [] if self.node is None else [self.node]
        return locks_on_nodes(self.locks, nodes, self.lock_uuids or {})

    @classmethod
    def summary_value(cls, fields: Mapping[str, Any]) -> str | None:
        """The command line on one line, cut to a length that fits a listing."""
        argv = fields.get("argv")
        if not isinstance(argv, list | tuple):
            return None
        text = " ".join(" ".join(str(word) for word in argv).split())
        if not text.isprintable():
            text = "".join(sign if sign.isprintable() else "?" for sign in text)
        room = SUMMARY_CHARACTERS_MAX - len("EXEC()")
        return text if len(text) <= room else text[: room - 3] + "..."


_STDINS = 3
"""How many parameters an opcode has for its standard input; at most one is given."""

SUMMARY_CHARACTERS_MAX = 60
"""Longest summary of a command."""


class OpTestDelay(Opcode, kw_only=True):
    """Wait for some time, and do nothing else: for tests."""

    op_id: ClassVar[str] = "OP_TEST_DELAY"
    summary_field: ClassVar[str | None] = "duration"
    built_in: ClassVar[bool] = True
    reuses_process: ClassVar[bool] = True
    is_locked_by_store: ClassVar[bool] = True

    duration: float
    on_master: bool = True
    on_nodes: list[NonEmptyStr] = []
    on_node_uuids: list[NonEmptyStr] | None = None
    repeat: Annotated[int, msgspec.Meta(ge=0)] = 0
    interruptible: bool = False
    no_locks: bool = True
    """Has no effect, as in Ganeti: the job takes the locks of the nodes all the same."""

    def lock_needs(self, uuid_of: Callable[[str], str] = str) -> LockNeeds:
        """Each node exclusively, and the master node too by default.

        The configuration store resolves their names; ``uuid_of`` gives a name that it does not know
        as it is. UUIDs beside names are what these were when the job ran that is repeated.
        """
        nodes = set(self.on_nodes or self.on_node_uuids or ())
        if self.on_master:
            nodes.add(MASTER_NODE)
        if not nodes:
            return NO_LOCKS
        return LockNeeds(node=LevelNeeds(exclusive=tuple(sorted(set(map(uuid_of, nodes))))))

    def filled_in(self, needs: LockNeeds) -> dict[str, Any]:
        """The nodes that it locks: clients of Ganeti see there what a name has become."""
        return {"on_node_uuids": list(needs.node.exclusive)}

    @classmethod
    def summary_value(cls, fields: Mapping[str, Any]) -> str | None:
        """The duration in whole nanoseconds."""
        duration = fields.get("duration")
        if isinstance(duration, bool) or not isinstance(duration, int | float):
            return None
        nanoseconds = duration * 1e9
        return f"{round(nanoseconds)} ns" if math.isfinite(nanoseconds) else None


class Family(Protocol):
    """A module with many opcodes, each made when it is first asked for."""

    __name__: str

    def known_ids(self) -> Collection[str]:
        """The ids of the family's opcodes."""

    def find(self, op_id: str) -> type[Opcode] | None:
        """The type of the opcodes called ``op_id``; the same whenever it is asked for."""


class UserOpcodes(msgspec.Struct, frozen=True):
    """Result of `load_user_opcodes`: the ids loaded, and a sentence for each broken plug-in."""

    loaded: tuple[str, ...]
    problems: tuple[str, ...]


_OWN: dict[str, type[Opcode]] = {
    declared.op_id: declared for declared in (OpExec, OpTestDelay, OpNodeCall, OpNodeCopy)
}
_problems: list[str] = []
_PROBLEM_CHARACTERS_MAX = 1_000
_from_users: dict[str, type[Opcode]] = {}
_entries: set[tuple[str, str, str]] = set()
"""The entry points that were there when opcodes were loaded, broken ones included."""
_loads = 0
_families: tuple[Family, ...] | None = None


def families() -> tuple[Family, ...]:
    """The families of installed packages. They are looked up once."""
    if _families is None:
        use_families(entry_points.load(entry_points.OPCODE_FAMILIES).objects.values())
        assert _families is not None
    return _families


def use_families(found: Iterable[Family]) -> None:
    """Have these families from now on: a job's process is told them, as a look-up is slow."""
    global _families  # noqa: PLW0603 - there is one catalogue
    _families = tuple(found)


def find(op_id: str) -> type[Opcode] | None:
    """The type of the opcodes called ``op_id``, if there is one."""
    found = _OWN.get(op_id) or _from_users.get(op_id)
    if found is None:
        made = (family.find(op_id) for family in families())
        found = next((one for one in made if one is not None), None)
    return found


def summary(fields: Mapping[str, Any]) -> str:
    """How a listing shows a stored opcode, such as ``INSTANCE_CREATE(web1)``. Never fails."""
    op_id = fields.get("OP_ID")
    if not isinstance(op_id, str) or not op_id:
        return INVALID_SUMMARY
    name = op_id.removeprefix("OP_")
    declared = find(op_id)
    if declared is None:
        return name
    try:
        value = declared.summary_value(fields)
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        # A plug-in may raise anything, and the job must be listed.
        return name
    if value is None:
        return name
    # Nearly every value is such a text.
    is_plain = type(value) is str and value.isascii()
    return f"{name}({value if is_plain else text_of(value)})"


def generation() -> int:
    """Another number after each `load_user_opcodes`: what was found out before may be wrong."""
    return _loads


def known_ids() -> list[str]:
    """The ids of all opcodes, sorted."""
    in_families = (op_id for family in families() for op_id in family.known_ids())
    return sorted({*_OWN, *_from_users, *in_families})


def has_operation(op_id: str) -> bool:
    """Whether opcodes called ``op_id`` have an operation."""
    found = find(op_id)
    return found is not None and found.has_operation()


def load_user_opcodes() -> UserOpcodes:
    """Load the opcodes of installed packages, and forget earlier ones; leave out broken ones.

    It imports code of other people.
    """
    global _loads  # noqa: PLW0603 - there is one catalogue
    # A process that starts has just looked through the packages.
    entries = _installed() if _loads else entry_points.installed(ENTRY_POINT_GROUP)
    _loads += 1
    _from_users.clear()
    _problems.clear()
    _entries.clear()
    for entry in sorted(entries, key=lambda entry: entry.name):
        _entries.add(_identity(entry))
        try:
            declared = _load_declared(entry)
        except errors.OpcodeError as error:
            _problems.append(" ".join(error.text.split())[:_PROBLEM_CHARACTERS_MAX])
        else:
            _from_users[declared.op_id] = declared
    return UserOpcodes(tuple(sorted(_from_users)), tuple(_problems))


def installed_since() -> tuple[str, ...]:
    """The packages that bring opcodes, and were not there at the last `load_user_opcodes`."""
    if not _loads:
        return ()
    found = {_package(entry) for entry in _installed() if _identity(entry) not in _entries}
    return tuple(sorted(found))


def _installed() -> EntryPoints:
    # Slow to import, and the fork server for built-in operations never needs it.
    from importlib import metadata  # noqa: PLC0415

    return metadata.entry_points(group=ENTRY_POINT_GROUP)


def _package(entry: EntryPoint) -> str:
    return f"package {entry.dist.name if entry.dist else '?'}"


def _identity(entry: EntryPoint) -> tuple[str, str, str]:
    return _package(entry), entry.name, entry.value


def problems() -> tuple[str, ...]:
    """One sentence for each opcode of a package that could not be loaded."""
    return tuple(_problems)


def _load_declared(entry: EntryPoint) -> type[Opcode]:
    place = f"{_package(entry)}: opcode {entry.name!r}"
    try:
        declared = entry.load()
    # A foreign module may raise anything, even SystemExit: only this plug-in is left out.
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        raise errors.OpcodeError(
            f"{place} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if problem := _problem_of(declared):
        raise errors.OpcodeError(f"{place} ({entry.value}): {problem}")
    assert isinstance(declared, type)
    assert issubclass(declared, Opcode)
    return declared


def _problem_of(declared: object) -> str | None:
    if not (isinstance(declared, type) and issubclass(declared, Opcode)):
        return "it is not a class derived from Opcode"
    if problem := misdeclared(declared):
        return problem
    if not _is_op_id(declared.op_id):
        return f"op_id {declared.op_id!r} is not OP_ and capitals, digits and underscores"
    if find(declared.op_id) is not None:
        return f"{declared.op_id} is declared already"
    if not declared.has_operation():
        return "it brings no operation: define run(self, context)"
    try:
        msgspec.convert({}, declared)
    except msgspec.ValidationError:
        # A required parameter is missing, as expected: the types are sound.
        return None
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        # A broken annotation may raise anything.
        return f"its parameters cannot be checked: {type(error).__name__}: {error}"
    return None


def _is_op_id(text: object) -> bool:
    if not isinstance(text, str) or not text.startswith("OP_"):
        return False
    name = text.removeprefix("OP_")
    return bool(name) and name.isascii() and name.replace("_", "A").isalnum() and name.isupper()
