"""How a query is answered: which items, in which order, and with which values.

Source: "Ganeti design: query version 2 design", and what Ganeti 3.0's LuxiD answers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic

import msgspec

from ... import errors
from ...filters.filter_evaluation import MISSING, Dialect, FilterTest, Resolve, compile_filter
from ...filters.filters import (
    OPERATORS_MAX,
    Always,
    AnyOf,
    Comparison,
    Filter,
    Value,
    fields_of,
    is_value,
    parse_filter,
    pattern_characters,
    rule_error,
)
from .fields import (
    UNKNOWN,
    Answer,
    Definition,
    Field,
    FieldKind,
    Fields,
    HostName,
    Item,
    Source,
    Status,
)

QUERY_OPERATORS_MAX: Final = 1_000
"""Most operators in the filter of a query, unless it only compares names: others wait for it."""

PATTERN_CHARACTERS_MAX: Final = 2_000
"""Most characters of all regular expressions in the filter of a query, for the same reason."""


class Resource(msgspec.Struct, Generic[Source], frozen=True, eq=False):
    """What can be asked for: the fields of its items, and where the items are."""

    name: str
    fields: Fields[Source]

    items: Callable[[Source], Iterable[Item]]
    """All items, in the order of an answer."""

    mark: Callable[[Item], str]
    """Tells where in this order an item stands, also in a later state of the source."""

    place: Callable[[str], Any]
    """From a mark to the key that sorts items; `ValueError` if the text is no mark."""

    find: Callable[[Source, Value], Item | None] | None = None
    """The item that a filter by name means; without it such a filter is one like others."""

    noun: str = ""
    """What an error says before a name."""

    name_field: str = "name"
    """The field by which a filter names items."""

    key: Callable[[Item], Hashable] = id
    """Tells an item from others."""

    key_of_name: Callable[[Value], Hashable] | None = None
    """The same from a name, where it takes no look-up."""

    is_listed_as_named: bool = False
    """Whether a classic listing keeps the order of the names."""


def query(
    resource: Resource[Source], source: Source, fields: Sequence[str], raw_filter: object = None
) -> dict[str, Any]:
    """The answer to a query, as JSON: the ``fields`` with their definitions, and the ``data``.

    The values may be parts of the source: callers must not change them.

    A filter that only compares the name field, for one name or for several, asks for these items:
    they come in its order, each once, and `UnknownObjectError` says which one does not exist.
    `ParameterError` refuses a filter with an unknown field or with a value of the wrong type.
    """
    asked = ParsedQuery(resource, fields, raw_filter)
    rows = [asked.row(source, item) for item in asked.items(source)]
    return {"fields": asked.definitions(), "data": rows}


def query_fields(resource: Resource[Source], fields: Sequence[str] | None) -> dict[str, Any]:
    """The definitions of the fields, as JSON; of all in natural order, if none are named."""
    names = fields or list(resource.fields)
    return {"fields": [_chosen(resource, name).definition.plain() for name in names]}


def values(
    resource: Resource[Source], source: Source, fields: Sequence[str], raw_filter: object = None
) -> list[list[Any]]:
    """The answer in the classic form: values only, None for those that are not normal.

    As `query`, but named items come in the order of the resource, unless it lists them as named,
    and unknown names are left out. `BadRequestError` refuses unknown fields.
    """
    asked = ParsedQuery(resource, fields, raw_filter, is_classic=True)
    return [asked.row(source, item) for item in asked.items(source)]


def requested_names(resource: Resource[Any], tree: Filter) -> list[Value] | None:
    """The names that a filter asks for; None if it does anything else."""
    if resource.find is None:
        return None
    match tree:
        case Comparison("==", field, value) if field == resource.name_field:
            return [value]
        case AnyOf(parts) if parts:
            found = [requested_names(resource, part) for part in parts]
            if None not in found:
                return [name for some in found for name in some or ()]
    return None


def _listed_names(resource: Resource[Any], raw_filter: object) -> list[Value] | None:
    """As `requested_names`, of a plain list of names in JSON form, which needs no tree.

    A listing by names may have ten thousand of them.
    """
    if resource.find is None or not isinstance(raw_filter, list | tuple):
        return None
    if len(raw_filter) < _LISTED_MIN or raw_filter[0] != "|" or len(raw_filter) > OPERATORS_MAX:
        return None
    field, names = resource.name_field, list[Value]()
    for part in raw_filter[1:]:
        if not isinstance(part, list | tuple) or len(part) != _COMPARISON_PARTS:
            return None
        sign, name, value = part
        if name != field or sign not in {"==", "="} or not is_value(value):
            return None
        names.append(value)
    return names


def _parsed(raw_filter: object) -> Filter:
    """The tree; `FilterRuleError` also refuses a filter that would take too long."""
    if pattern_characters(raw_filter) > PATTERN_CHARACTERS_MAX:
        problem = f"its regular expressions have more than {PATTERN_CHARACTERS_MAX} characters"
        raise rule_error("filter", problem)
    return parse_filter(raw_filter, operators_max=QUERY_OPERATORS_MAX)


def _check_known(resource: Resource[Any], fields: Sequence[str]) -> None:
    unknown = [name for name in fields if name not in resource.fields]
    if unknown:
        listed = ", ".join(unknown)
        raise errors.BadRequestError(f"Unknown output fields selected: {listed}")


def _chosen(resource: Resource[Source], name: str) -> Field[Source]:
    """The field, or one that has no value for any item."""
    known = resource.fields.get(name)
    if known is not None:
        return known
    return Field(Definition(name, name, FieldKind.UNKNOWN, f"Unknown field '{name}'"), _unknown)


def _unknown(_source: object, _item: Item) -> Answer:
    return UNKNOWN


# ---------------------------------------------------------------- choosing items


def _is_equal(found: object, wanted: object) -> bool:
    if found == wanted:
        return True
    return isinstance(found, HostName) and found.startswith(f"{wanted}.")


_LISTED_MIN: Final = 2
_COMPARISON_PARTS: Final = 3
_DIALECT: Final = Dialect(equal=_is_equal, is_for_queries=True)


class ParsedQuery(Generic[Source]):
    """A query, checked: its fields, and which items it is about.

    ``is_classic``: its rows have bare values, and unknown names are left out.
    """

    def __init__(
        self,
        resource: Resource[Source],
        fields: Sequence[str],
        raw_filter: object,
        *,
        is_classic: bool = False,
    ) -> None:
        """Raises `FilterRuleError` or `ParameterError`; if classic, also `BadRequestError`."""
        if is_classic:
            _check_known(resource, fields)
        self.names = _listed_names(resource, raw_filter)
        """The names of the items; None: all that match."""
        self._tree: Filter | None = None
        self.filter_fields = frozenset([resource.name_field])
        """The fields at which the filter looks."""
        if self.names is None:
            tree = self._tree = _parsed(raw_filter)
            self.filter_fields = frozenset(fields_of(tree))
            for name in fields_of(tree):
                if name not in resource.fields:
                    raise errors.ParameterError(f"Can't find field named '{name}'")
            self.names = requested_names(resource, tree)
        self.resource = resource
        self.fields = tuple(fields)
        """The fields of each row."""
        self.is_as_named = self.names is not None and (
            not is_classic or resource.is_listed_as_named
        )
        """Whether the items come in the order of their names."""
        self._is_classic = is_classic
        self._chosen = [_chosen(resource, name) for name in fields]
        self._test: FilterTest | None = None

    def definitions(self) -> list[dict[str, str]]:
        """The fields, as JSON."""
        return [one.definition.plain() for one in self._chosen]

    def row(self, source: Source, item: Item) -> list[Any]:
        """The answer for one item: status and value of each field, or the bare values."""
        if self._is_classic:
            return [one.get(source, item).value for one in self._chosen]
        return [[*one.get(source, item)] for one in self._chosen]

    def items(self, source: Source) -> Iterable[Item]:
        """The items of the answer, in its order. Raises what `named` and `matching` raise."""
        if self.is_as_named:
            return self.named(source)
        return self.matching(source) if self.names is None else self.known(source)

    def named(self, source: Source, begin: int = 0) -> Iterator[Item]:
        """The named items from place ``begin`` on, each once. Raises `UnknownObjectError`."""
        resource = self.resource
        seen: set[Hashable] = set()
        for name in self.names or ():
            item = None
            if resource.key_of_name is None:
                item = _found(resource, source, name)
                key = resource.key(item)
            else:
                key = resource.key_of_name(name)
            if key not in seen:
                seen.add(key)
                if len(seen) > begin:
                    yield _found(resource, source, name) if item is None else item

    def known(self, source: Source) -> Sequence[Item]:
        """Those of the named items that exist, each once, in the order of the resource."""
        resource = self.resource
        assert resource.find is not None, "names are requested from resources that find items"
        found = {
            resource.key(item): item
            for name in self.names or ()
            if (item := resource.find(source, name)) is not None
        }
        if len(found) <= 1:
            return list(found.values())
        return [item for item in resource.items(source) if resource.key(item) in found]

    def matching(self, source: Source) -> Iterator[Item]:
        """The items that pass the filter. Raises `ParameterError`."""
        return (item for item in self.resource.items(source) if self.passes(source, item))

    def passes(self, source: Source, item: Item) -> bool:
        """Whether the item passes the filter. Raises `ParameterError`."""
        if self._tree is None or isinstance(self._tree, Always):
            return True
        if self._test is None:
            self._test = compile_filter(self._tree, _DIALECT)
        return self._test(_resolver(self.resource.fields, source, item))


def _found(resource: Resource[Source], source: Source, name: Value) -> Item:
    assert resource.find is not None, "names are requested from resources that find items"
    item = resource.find(source, name)
    if item is None:
        raise errors.UnknownObjectError(f"{resource.noun} {name} not found")
    return item


def _resolver(fields: Mapping[str, Field[Source]], source: Source, item: Item) -> Resolve:
    """The values of an item that a filter asks for, each found once."""
    found: dict[str, object] = {}

    def resolve(name: str) -> object:
        if name not in found:
            status, value = fields[name].get(source, item)
            found[name] = fields[name].in_filters(value) if status is Status.NORMAL else MISSING
        return found[name]

    return resolve
