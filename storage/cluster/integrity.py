"""Whether the objects of a configuration fit each other, as a whole and change by change.

How it works: each object makes assertions (`assertions`): values that it claims for itself, things
that it needs or provides. The index holds the assertions of all objects. A batch of changes takes
the old ones of its objects out and puts the new ones in; then only what was touched is looked at.
A change that adds a problem is taken back and refused.

A problem has an identity: its place and the rule that it breaks. A configuration that was loaded
with problems can be changed as long as no change adds one. So a change may repair one of several,
and need not repair any.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from .. import errors
from ..wording import counted
from .assertions import Assertions, Claim, Token, assertions_of
from .configuration import Change, Configuration
from .objects import Object, ObjectKind, place_of, top_problem

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

PROBLEMS_SHOWN_MAX: Final = 3
"""Problems that one error names; it counts the others."""


class Problem(NamedTuple):
    """One contradiction. Two problems of the same place and rule are the same one."""

    place: str
    rule: str
    text: str


Found: TypeAlias = dict[tuple[str, str], str]
"""Texts of problems by their identities."""


def problems(configuration: Configuration) -> list[str]:
    """Everything that is wrong with a configuration, one line each; reads all of it."""
    top = top_problem(configuration.top)
    found = [problem.text for problem in Index(configuration).problems(configuration)]
    return [top, *found] if top is not None else found


class Index:
    """The assertions of all objects of one snapshot, kept beside it; the store's own.

    Costs the size of the configuration to make, and the size of the changed objects to keep.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._holders: dict[Claim, tuple[str, ...]] = {}
        self._needs: dict[Token, dict[str, int]] = {}
        self._provided: dict[Token, int] = {}
        self._ports: dict[int, tuple[str, ...]] = {}
        self._candidates_possible = 0
        self._candidates = 0
        self._set_limits(configuration.cluster)
        for kind in ObjectKind:
            for uuid, found in configuration.objects(kind):
                self._add(assertions_of(kind, uuid, found))

    def accept(
        self, before: Configuration, after: Configuration, changes: Sequence[Change]
    ) -> None:
        """Go on from one snapshot to the next one, which these changes made.

        Raises `IntegrityError`, and stays as it was, if the changes add a problem. Call it before
        anybody sees the new snapshot.
        """
        steps = [_Step.of(change, before, after) for change in changes]
        touched = self._touched(steps, before, after)
        known = self._found(touched) | _own_problems((step.place, step.old) for step in steps)
        self._move(steps, after)
        found = self._found(touched) | _own_problems((step.place, step.new) for step in steps)
        added = [text for identity, text in found.items() if identity not in known]
        if added:
            self._move([step.reversed() for step in steps], before)
            raise errors.IntegrityError(_summary(added))

    def take_back(
        self, before: Configuration, after: Configuration, changes: Sequence[Change]
    ) -> None:
        """Undo `accept` with the same arguments, for a batch that could not be stored."""
        self._move([_Step.of(change, before, after).reversed() for change in changes], before)

    def claimed(self, what: str, scope: str = "") -> Container[object]:
        """The values of this kind that are in use, to be asked whether they contain one.

        The names of kinds and scopes are in `assertions`: MAC addresses (small letters), ports, and
        the DRBD minor numbers on a node. An answer costs one look and holds for that moment.
        """
        return _Members(self._holders, lambda value: Claim(what, str(value), scope))

    def provided(self, what: str) -> Container[object]:
        """As `claimed`, for what several may have: logical volumes (``group/volume``), secrets."""
        return _Members(self._provided, lambda value: Token(what, str(value)))

    def problems(self, configuration: Configuration) -> list[Problem]:
        """All problems of the snapshot beside which the index is kept; reads all of it."""
        everything = _Touched(
            claims=self._holders.keys(), tokens=self._needs.keys(), ports=self._ports.keys()
        )
        assertions = (
            (place_of(kind, uuid), assertions_of(kind, uuid, found))
            for kind in ObjectKind
            for uuid, found in configuration.objects(kind)
        )
        found = _own_problems(assertions) | self._found(everything)
        return [Problem(place, rule, text) for (place, rule), text in found.items()]

    # ------------------------------------------------------------ keeping

    def _move(self, steps: Iterable[_Step], after: Configuration) -> None:
        for step in steps:
            self._remove(step.old)
            self._add(step.new)
        self._set_limits(after.cluster)

    def _add(self, assertions: Assertions) -> None:
        for claim, place in assertions.claims:
            self._holders[claim] = (*self._holders.get(claim, ()), place)
        for token, place in assertions.needs:
            places = self._needs.setdefault(token, {})
            places[place] = places.get(place, 0) + 1
        for token in assertions.provides:
            self._provided[token] = self._provided.get(token, 0) + 1
        for port, place in assertions.ports:
            self._ports[port] = (*self._ports.get(port, ()), place)
        self._candidates_possible += assertions.candidates_possible
        self._candidates += assertions.candidates

    def _remove(self, assertions: Assertions) -> None:
        for claim, place in assertions.claims:
            _set_or_drop(self._holders, claim, _without(self._holders[claim], place))
        for token, place in assertions.needs:
            _set_or_drop(self._needs[token], place, self._needs[token][place] - 1)
            _set_or_drop(self._needs, token, self._needs[token])
        for token in assertions.provides:
            _set_or_drop(self._provided, token, self._provided[token] - 1)
        for port, place in assertions.ports:
            _set_or_drop(self._ports, port, _without(self._ports[port], place))
        self._candidates_possible -= assertions.candidates_possible
        self._candidates -= assertions.candidates

    def _set_limits(self, cluster: Object) -> None:
        self._port_max = _limit(cluster.get("highest_used_port"))
        self._pool_size = _limit(cluster.get("candidate_pool_size"))

    # ------------------------------------------------------------ finding

    def _touched(
        self, steps: Sequence[_Step], before: Configuration, after: Configuration
    ) -> _Touched:
        """What a batch may have put right or wrong."""
        both = [assertions for step in steps for assertions in (step.old, step.new)]
        ports: Iterable[int] = {port for one in both for port, _ in one.ports}
        if _is_lowered(*(_limit(one.cluster.get("highest_used_port")) for one in (before, after))):
            # Their bound changed, not the ports themselves. Ganeti only ever raises it.
            ports = {*ports, *self._ports}
        return _Touched(
            claims={claim for one in both for claim, _ in one.claims},
            tokens={token for one in both for token, _ in one.needs}
            | {token for one in both for token in one.provides},
            ports=ports,
        )

    def _found(self, touched: _Touched) -> Found:
        found: Found = {}
        for problem in self._look(touched):
            found[problem.place, problem.rule] = problem.text
        return found

    def _look(self, touched: _Touched) -> Iterator[Problem]:
        for claim in touched.claims:
            holders = self._holders.get(claim, ())
            if len(holders) > 1:
                yield from _conflicts(claim, holders)
        for token in touched.tokens:
            if token not in self._provided:
                for place in self._needs.get(token, ()):
                    yield Problem(place, str(token), f"{place}: there is no {token}")
        for port in touched.ports:
            if self._port_max is not None and port > self._port_max:
                yield from self._ports_beyond(port)
        yield from self._pool_problem()

    def _ports_beyond(self, port: int) -> Iterator[Problem]:
        for place in self._ports.get(port, ()):
            text = f"{place}: port {port} is above cluster.highest_used_port ({self._port_max})"
            yield Problem(place, f"port {port} above the highest", text)

    def _pool_problem(self) -> Iterator[Problem]:
        if self._pool_size is None:
            return
        wanted = min(self._candidates_possible, self._pool_size)
        if self._candidates < wanted:
            place = "cluster.candidate_pool_size"
            text = (
                f"{place}: expected {counted(wanted, 'master candidate')}, got {self._candidates}; "
                "more nodes could be one"
            )
            yield Problem(place, "too few master candidates", text)


class _Members(Container[object]):
    """The keys of a table that stand for some values."""

    def __init__(self, table: Container[object], key: Callable[[object], object]) -> None:
        self._table, self._key = table, key

    def __contains__(self, value: object) -> bool:
        return self._key(value) in self._table


class _Touched(NamedTuple):
    """Where to look for problems."""

    claims: Iterable[Claim]
    tokens: Iterable[Token]
    ports: Iterable[int]


class _Step(NamedTuple):
    """The assertions of one object before and after a change."""

    place: str
    old: Assertions
    new: Assertions

    @classmethod
    def of(cls, change: Change, before: Configuration, after: Configuration) -> _Step:
        kind, uuid = change.kind, change.uuid
        old, new = before.get(kind, uuid), after.get(kind, uuid)
        return cls(change.place, assertions_of(kind, uuid, old), assertions_of(kind, uuid, new))

    def reversed(self) -> _Step:
        return _Step(self.place, self.new, self.old)


def _conflicts(claim: Claim, holders: Sequence[str]) -> Iterator[Problem]:
    for place in dict.fromkeys(holders):
        other = next((holder for holder in holders if holder != place), None)
        where = "twice here" if other is None else f"in use by {other}"
        yield Problem(place, str(claim), f"{place}: {claim} is {where}")


def _own_problems(assertions: Iterable[tuple[str, Assertions]]) -> Found:
    return {(place, text): text for place, own in assertions for text in own.problems}


def _summary(added: Sequence[str]) -> str:
    shown = "; ".join(added[:PROBLEMS_SHOWN_MAX])
    left = len(added) - PROBLEMS_SHOWN_MAX
    return shown if left <= 0 else f"{shown}; and {counted(left, 'other problem')}"


def _limit(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_lowered(before: int | None, after: int | None) -> bool:
    return after is not None and (before is None or after < before)


def _without(places: tuple[str, ...], place: str) -> tuple[str, ...]:
    at = places.index(place)
    return places[:at] + places[at + 1 :]


def _set_or_drop(table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Keep what is left, if anything is: the index holds no empty entries."""
    if value:
        table[key] = value
    else:
        table.pop(key, None)
