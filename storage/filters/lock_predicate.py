"""The predicate ``lock``: its fields, and what ``touches`` stands for. No files, no clock.

A candidate is one lock that the job takes. ``["=", "touches", "node/n7"]`` is written out when a
rule is compiled: taking the lock itself, the whole level, or names of it that are not known yet.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from .. import errors
from ..locks.locks import CLUSTER_LOCK_SET, LockLevel, LockMode, level_of
from ..wording import brief, has_control
from .filter_evaluation import MISSING
from .filters import (
    AllOf,
    Always,
    AnyOf,
    Comparison,
    Contains,
    Filter,
    IsTrue,
    Not,
    Search,
    rule_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .filter_evaluation import Resolve

TOUCHES: Final = "touches"
UNKNOWN: Final = "?"
"""The name of locks that are not known yet."""

_ALL, _LOCK_SET = "*", "[lockset]"
_EXAMPLES: Final = "a lock such as node/n7, node/* or instance/web"


class LockClaim(NamedTuple):
    """A lock that a job takes. ``name``: also ``*``, the whole level, or ``?``, unknown names."""

    level: str
    name: str
    mode: str


def claims_of_lock(level: str, name: str, mode: str) -> tuple[LockClaim, ...]:
    """What an owner of this lock has. The big lock, exclusively, keeps all other owners out.

    >>> claims_of_lock("node", "[lockset]", "shared")
    (LockClaim(level='node', name='*', mode='shared'),)
    """
    own = LockClaim(level, _ALL if name == _LOCK_SET else name, mode)
    if level == LockLevel.CLUSTER and name == "BGL" and mode == LockMode.EXCLUSIVE:
        return (own, *(LockClaim(one, _ALL, mode) for one in _LEVELS))
    return (own,)


_LEVELS: Final = tuple(
    str(level) for level in LockLevel if level not in (LockLevel.CLUSTER, LockLevel.CONFIG)
)


def resolvers(claims: Iterable[LockClaim]) -> Iterator[Resolve]:
    """The candidates of the predicate."""
    return (partial(_field, claim) for claim in claims)


def _field(claim: LockClaim, field: str) -> object:
    return getattr(claim, field) if field in LockClaim._fields else MISSING


def in_words(claim: LockClaim) -> str:
    """What the job does, as an answer to why a rule holds it.

    >>> in_words(LockClaim("node", "n7", "shared")), in_words(LockClaim("node", "*", "exclusive"))
    ('it takes node/n7 (shared)', 'it takes every node lock (exclusive)')
    """
    if claim.name == _ALL:
        return f"it takes every {claim.level} lock ({claim.mode})"
    if claim.name == UNKNOWN:
        return (
            f"it may take any {claim.level} lock ({claim.mode}): which ones is known only when it"
            " begins"
        )
    return f"it takes {claim.level}/{claim.name} ({claim.mode})"


# ---------------------------------------------------------------- touches


def check(tree: Filter, where: str) -> None:
    """Raise `FilterRuleError` where ``touches`` has another sign than = or !=, or no lock."""
    for leaf in _leaves(tree):
        if leaf.field != TOUCHES:
            _check_name(leaf, where)
            continue
        if not isinstance(leaf, Comparison) or leaf.operator != "==":
            text = f"expected {TOUCHES} with = or !=, and {_EXAMPLES}"
            raise rule_error(where, text)
        parse_lock(leaf.value, f"{where}: {TOUCHES}")


def _check_name(leaf: IsTrue | Comparison | Search | Contains, where: str) -> None:
    """A lock that no job can name would hold nothing."""
    match leaf:
        case Comparison(_, "name", str(value)) if has_control(value):
            text = f"expected no control characters, got {brief(value)}"
            raise rule_error(f"{where}: name", text)


def _leaves(tree: Filter) -> Iterator[IsTrue | Comparison | Search | Contains]:
    match tree:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _leaves(part)
        case Not(part):
            yield from _leaves(part)
        case IsTrue() | Comparison() | Search() | Contains():
            yield tree


def parse_lock(text: object, where: str) -> tuple[str, str]:
    """Level and name of a lock, the name ``*`` for a level; `FilterRuleError` names ``where``."""
    if not isinstance(text, str):
        raise rule_error(where, f"expected {_EXAMPLES}, not {brief(text)}")
    level, _, name = text.partition("/")
    name = _ALL if name == _LOCK_SET else name
    try:
        # Lists of locks show the set of the cluster's own locks so, too.
        known = level_of(CLUSTER_LOCK_SET if text == "cluster/*" else text)
    except errors.LockRequestError as error:
        levels = ", ".join(one for one in LockLevel if one is not LockLevel.CONFIG)
        text = f"expected {_EXAMPLES}, not {brief(text)}; the levels are {levels}"
        raise rule_error(where, text) from error
    if known is LockLevel.CONFIG:
        raise rule_error(where, f"no rule sees {text}: opcodes take it for a moment, undeclared")
    if has_control(name):
        raise rule_error(where, f"expected no control characters, got {brief(text)}")
    if not name or name == UNKNOWN:
        raise rule_error(where, f"expected {_EXAMPLES}, not {brief(text)}")
    return level, name


def written_out(tree: Filter) -> Filter:
    """The same filter without ``touches``."""
    match tree:
        case AllOf(parts):
            return AllOf(tuple(map(written_out, parts)))
        case AnyOf(parts):
            return AnyOf(tuple(map(written_out, parts)))
        case Not(part):
            return Not(written_out(part))
        case Comparison("==", field, value) if field == TOUCHES:
            return _touching(*parse_lock(value, TOUCHES))
        case Always() | IsTrue() | Comparison() | Search() | Contains():
            return tree
        case _:
            assert_never(tree)


def keys(claims: Iterable[LockClaim]) -> frozenset[str]:
    """Each level of these locks, and each lock, as texts."""
    return frozenset(
        key for claim in claims for key in (claim.level, f"{claim.level}/{claim.name}")
    )


def keys_of(tree: Filter) -> frozenset[str] | None:
    """Of these keys a job must have one for the filter to be true; None: that is not known.

    >>> sorted(keys_of(Comparison("==", "touches", "instance/web")))
    ['instance/*', 'instance/?', 'instance/web']
    """
    match tree:
        case AllOf(parts):
            return next((some for part in parts if (some := keys_of(part)) is not None), None)
        case AnyOf(parts):
            each = [keys_of(part) for part in parts]
            known = [one for one in each if one is not None]
            return frozenset[str]().union(*known) if len(known) == len(each) else None
        case Comparison("==", field, value) if field == TOUCHES:
            return _keys_touching(*parse_lock(value, TOUCHES))
    return None


def _keys_touching(level: str, name: str) -> frozenset[str]:
    levels = _levels_of(level)
    if name == _ALL:
        return frozenset(levels)
    return frozenset(f"{one}/{each}" for one in levels for each in _names_of(one, name))


def _touching(level: str, name: str) -> Filter:
    return AnyOf(tuple(_on_level(one, name) for one in _levels_of(level)))


def _on_level(level: str, name: str) -> Filter:
    on_level = Comparison("==", "level", level)
    if name == _ALL:
        return on_level
    names = _names_of(level, name)
    return AllOf((on_level, AnyOf(tuple(Comparison("==", "name", one) for one in names))))


def _levels_of(level: str) -> tuple[str, ...]:
    return (level, str(LockLevel.NODE_RES)) if level == LockLevel.NODE else (level,)


def _names_of(level: str, name: str) -> tuple[str, ...]:
    return (name,) if level == LockLevel.CLUSTER else (name, _ALL, UNKNOWN)
