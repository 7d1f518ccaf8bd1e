"""Who waits for whom, as a tree of text and as DOT. Pure.

An arrow goes from an owner to one for which it waits: because of a lock that the other one holds
or wants before it, or because of a dependency between jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..storage.locks.locks import typed

if TYPE_CHECKING:
    from ..transport.messages import LockRow, LockWait

_JOB = "job/"


class Arrow(NamedTuple):
    """``owner`` waits for ``other``."""

    owner: str
    other: str
    why: str
    is_held: bool
    """False: the other one only comes before it in line."""


def arrows(waits: Iterable[LockWait], rows: Iterable[LockRow]) -> list[Arrow]:
    """The arrows of locks in the order of the line, then those of dependencies (``job/ID``)."""
    found = []
    for wait in waits:
        owner, wanted = _shown(wait.owner), f"{typed(wait.name)} ({wait.mode})"
        found += [
            Arrow(owner, _shown(holder), f"{wanted}, held {mode}", is_held=True)
            for holder, mode in wait.holders
        ]
        found += [
            Arrow(owner, _shown(ahead), f"{wanted}, wanted before", is_held=False)
            for ahead in wait.ahead
        ]
    for row in rows:
        if row.name.startswith(_JOB):
            other = _shown(row.name)
            for _, dependants in row.pending:
                found += [
                    Arrow(_shown(one), other, "its end (dependency)", is_held=True)
                    for one in dependants
                ]
    return found


def tree(found: list[Arrow]) -> Iterator[str]:
    """Each owner that waits for none, and below it those that wait for it.

    An owner that waits for several stands below each of them; what waits for it is shown once.
    """
    below: dict[str, list[Arrow]] = {}
    for arrow in found:
        below.setdefault(arrow.other, []).append(arrow)
    waiting = {arrow.owner for arrow in found}
    shown: set[str] = set()
    # The others at the end: in a ring each one waits.
    for root in (*(one for one in below if one not in waiting), *below):
        if root not in shown:
            yield root
            yield from _branch(root, below, shown)


def _branch(root: str, below: dict[str, list[Arrow]], shown: set[str]) -> Iterator[str]:
    # Without recursion: a chain of dependencies may be thousands of jobs long.
    stack = [("", iter(_placed(below.get(root, []))))]
    shown.add(root)
    while stack:
        indent, siblings = stack[-1]
        following = next(siblings, None)
        if following is None:
            stack.pop()
            continue
        arrow, is_last = following
        is_known = arrow.owner in shown and arrow.owner in below
        more = " (see above)" if is_known else ""
        yield f"{indent}{'`- ' if is_last else '|- '}{arrow.owner} waits for {arrow.why}{more}"
        if arrow.owner not in shown:
            shown.add(arrow.owner)
            deeper = indent + ("   " if is_last else "|  ")
            stack.append((deeper, iter(_placed(below.get(arrow.owner, [])))))


def _placed(siblings: list[Arrow]) -> list[tuple[Arrow, bool]]:
    return [(arrow, place == len(siblings) - 1) for place, arrow in enumerate(siblings)]


def dot(found: list[Arrow]) -> Iterator[str]:
    """The graph in the language of Graphviz."""
    yield "digraph locks {"
    yield "  rankdir=LR;"
    for arrow in found:
        label = f"label={_quoted(arrow.why)}{'' if arrow.is_held else ', style=dashed'}"
        yield f"  {_quoted(arrow.owner)} -> {_quoted(arrow.other)} [{label}];"
    yield "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _shown(owner: str) -> str:
    number = owner.removeprefix(_JOB)
    return f"job {number}" if number.isdecimal() else owner
