"""Which locks each opcode will take, as far as it can be known before it asks for them.

The forecast of an opcode is a function of its parameters and of the configuration. Without the
configuration, what it would resolve is unknown; `question_of` gives what to ask its owner. Nothing
here raises: a malformed opcode may take any lock.

Ganger's own opcodes are in `own_locks`; those of families join by an entry point. Opcodes of users
declare their own (`Opcode.lock_forecast`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from .. import entry_points
from ..cluster.configuration import Change, Configuration
from ..cluster.objects import ObjectKind
from ..opcodes import Opcode, parse
from ..opcodes.catalogue import find
from ..opcodes.interrupts import is_ctrl_c
from . import own_locks
from .declared_needs import LookupSnapshot, MalformedError, OpcodeInput
from .lock_types import (
    NO_LOCKS,
    UNKNOWN,
    JobForecast,
    LockForecast,
    LockType,
    levels_of,
    merged,
)
from .needs import forecast_with_unknowns

_SHARED_MAX = 4_096

Declaration = Callable[[OpcodeInput], LockForecast]
"""From an opcode, perhaps with the configuration, to its locks; may raise `MalformedError`."""


class DeclarationTable(Protocol):
    """A module that says which locks the opcodes of a family take."""

    @property
    def DECLARED(self) -> Mapping[str, tuple[Declaration, tuple[str, ...]]]:  # noqa: N802 - a table
        """By opcode: its declaration, and the parameters that this reads."""

    def read(self, kind: ObjectKind, found: Mapping[str, Any], /) -> object:
        """What the declarations read of an object."""


_TABLES: Final[Sequence[DeclarationTable]] = (
    *entry_points.load(entry_points.LOCK_DECLARATIONS).objects.values(),
    own_locks,
)

DECLARED: Final[Mapping[str, tuple[Declaration, tuple[str, ...]]]] = {
    op_id: declared for module in _TABLES for op_id, declared in module.DECLARED.items()
}
"""By opcode: its declaration, and the parameters that this reads in the configuration's light."""


def forecast(opcode: object, snapshot: LookupSnapshot | None = None) -> LockForecast:
    """The locks of one stored opcode. Never raises.

    >>> locks = {"node": {"exclusive": ["n1"]}}
    >>> forecast({"OP_ID": "OP_EXEC", "argv": ["true"], "locks": locks}).node.names
    ('n1',)
    """
    if not isinstance(opcode, (dict, Mapping)):
        return UNKNOWN
    op_id = opcode.get("OP_ID")
    if not isinstance(op_id, str):
        return UNKNOWN
    declared = DECLARED.get(op_id)
    if declared is None:
        return _of_users(op_id, opcode)
    try:
        return declared[0](OpcodeInput(opcode, snapshot))
    except MalformedError:
        return UNKNOWN


def question_of(opcode: object) -> str | None:
    """What the owner of the configuration needs to resolve this opcode; None: nothing is left.

    Opcodes that would have the same answer ask the same. A question has no secrets: only names and
    what else says which locks the opcode takes.
    """
    return _question_of(opcode, None)


def _question_of(opcode: object, known: LockForecast | None) -> str | None:
    """As `question_of`; ``known`` is the opcode's forecast, if it was made already."""
    op_id = opcode.get("OP_ID") if isinstance(opcode, Mapping) else None
    if not isinstance(opcode, Mapping) or not isinstance(op_id, str) or op_id not in DECLARED:
        return None
    found = forecast(opcode) if known is None else known
    if found is UNKNOWN or not _is_unsure(found):
        return None
    read = {name: _relevant(opcode[name]) for name in DECLARED[op_id][1] if name in opcode}
    try:
        return msgspec.json.encode({"OP_ID": op_id, **read}).decode()
    except (TypeError, ValueError, RecursionError):
        return None


def forecast_of_job(
    opcodes: Sequence[object], snapshot: LookupSnapshot | None = None
) -> JobForecast:
    """The locks of a job with these opcodes. Never raises."""
    found = [forecast(opcode, snapshot) for opcode in opcodes]
    return _joined(found)


def _joined(found: Sequence[LockForecast]) -> JobForecast:
    if len(found) <= 1:
        # Most jobs.
        only = found[0] if found else NO_LOCKS
        return JobForecast(only, only)
    return JobForecast(found[0], merged(found))


class Foreseen(NamedTuple):
    """What is known of the locks of a job without the configuration.

    ``question``: what its owner must be asked for the rest (`question_of_job`); None: nothing.
    """

    forecast: JobForecast
    question: str | None = None


def foreseen_of_job(opcodes: Sequence[object]) -> Foreseen | None:
    """The locks of a job with these opcodes, and what to ask; None: it takes no locks.

    Jobs with the same locks share one object, as far as they come one after the other.

    >>> foreseen_of_job([{"OP_ID": "OP_EXEC", "argv": ["true"]}])
    """
    of_each = [forecast(opcode) for opcode in opcodes]
    found = _joined(of_each)
    if found.of_all is NO_LOCKS or found.of_all == NO_LOCKS:
        return None
    question = _question_of_job(opcodes, of_each) if _is_unsure(found.of_all) else None
    return _shared(found, question)


@functools.lru_cache(maxsize=_SHARED_MAX)
def _shared(found: JobForecast, question: str | None) -> Foreseen:
    return Foreseen(found, question)


def question_of_job(opcodes: Sequence[object]) -> str | None:
    """What the owner of the configuration needs to resolve this job; None: nothing is left.

    Begins with the first opcode. What the others take altogether is as small as their locks differ.
    """
    return _question_of_job(opcodes, [forecast(opcode) for opcode in opcodes])


def _question_of_job(opcodes: Sequence[object], of_each: Sequence[LockForecast]) -> str | None:
    """As `question_of_job`, when the forecast of each opcode was made."""
    asked = list(map(_question_of, opcodes, of_each))
    if not any(asked):
        return None
    fixed = [found for found, one in zip(of_each[1:], asked[1:], strict=True) if one is None]
    entries = [*dict.fromkeys(question for question in asked if question is not None)]
    if asked[0] is None:
        entries.insert(0, _fixed(of_each[0]))
    if fixed:
        entries.append(_fixed(merged(fixed)))
    return f"[{','.join(entries)}]"


def _fixed(found: LockForecast) -> str:
    return msgspec.json.encode({_FORECAST: found}).decode()


_FORECAST: Final = "forecast"


def answer_to_job(question: str, snapshot: LookupSnapshot) -> JobForecast:
    """The locks of the jobs that ask this. Never raises, as `answer_to`."""
    try:
        entries = msgspec.json.decode(question, type=list[msgspec.Raw])
        return _joined([_entry(bytes(entry).decode(), snapshot) for entry in entries])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return JobForecast(UNKNOWN, UNKNOWN)


def _entry(text: str, snapshot: LookupSnapshot) -> LockForecast:
    if text.startswith(f'{{"{_FORECAST}":'):
        return msgspec.json.decode(text, type=dict[str, LockForecast])[_FORECAST]
    return answer_to(text, snapshot)


def answer_to(question: str, snapshot: LookupSnapshot) -> LockForecast:
    """The locks of the opcodes that ask this. Never raises, in whatever state the objects are."""
    try:
        return forecast(msgspec.json.decode(question), snapshot)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        # Objects of a damaged configuration, which is served so that it can be repaired.
        return UNKNOWN


def changes_forecasts(
    before: Configuration, after: Configuration, changes: Iterable[Change]
) -> bool:
    """Whether forecasts may differ after these changes. Costs the size of the changed objects."""
    return any(
        _read(change.kind, before.get(change.kind, change.uuid))
        != _read(change.kind, after.get(change.kind, change.uuid))
        for change in changes
    )


def _read(kind: ObjectKind, found: object) -> object:
    if not isinstance(found, Mapping):
        return None
    # Objects of which nothing is read are as those that are not there.
    return [values for table in _TABLES if (values := table.read(kind, found))] or None


def _is_unsure(found: LockForecast) -> bool:
    return not _UNSURE.isdisjoint([level.type for level in levels_of(found)])


_UNSURE: Final = frozenset({LockType.UNKNOWN_SHARED, LockType.UNKNOWN_EXCLUSIVE})

_NODES_OF_ONE: Final = ("pnode", "pnode_uuid", "snode", "snode_uuid")


def _relevant(value: object) -> object:
    """The parameter; of instances that are to be made only their nodes."""
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        return [
            {name: one[name] for name in _NODES_OF_ONE if name in one}
            if isinstance(one, Mapping)
            else one
            for one in value
        ]
    return value


# ---------------------------------------------------------------- opcodes of users


def _of_users(op_id: str, opcode: Mapping[str, Any]) -> LockForecast:
    declared = find(op_id)
    if declared is None or declared.is_locked_by_store:
        return UNKNOWN
    if _has_no_locks(declared):
        return NO_LOCKS
    try:
        return forecast_with_unknowns(parse(opcode).lock_forecast())
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        # A plug-in's own code may raise anything; that must not stop the daemon.
        return UNKNOWN


def _has_no_locks(declared: type[Opcode]) -> bool:
    return (
        declared.lock_needs is Opcode.lock_needs and declared.lock_forecast is Opcode.lock_forecast
    )
