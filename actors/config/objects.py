"""Reads and checks objects of the configuration for requests. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...storage import errors
from ...storage.cluster.configuration import Change
from ...storage.cluster.differences import MASK, masked
from ...storage.cluster.objects import ObjectKind, place_of
from ...storage.wording import shortened
from ...transport.messages import ObjectChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ...storage.cluster.configuration import Configuration
    from ...transport.messages import SetValues


_STAMPS = ("ctime", "mtime", "serial_no")

DEPTH_MAX = 100
"""Deepest nesting of an object: whatever reads it later has a stack of limited height."""


def found(snapshot: Configuration, kind: ObjectKind, name: str) -> dict[str, Any]:
    """The object with this UUID or name, without its secrets. Raises `UnknownObjectError`."""
    one: dict[str, Any] = masked(_one(snapshot, kind, name))
    return one


def _one(snapshot: Configuration, kind: ObjectKind, name: str) -> Any:  # noqa: ANN401 - decoded JSON
    one = snapshot.get(kind, name) or snapshot.find_by_name(kind, name)
    if one is None:
        text = f"{place_of(kind, shortened(name))}: there is no such object"
        raise errors.UnknownObjectError(text)
    return one


def with_values(snapshot: Configuration, message: SetValues) -> Change:
    """The change that gives these values. Raises `BadRequestError`."""
    is_cluster = message.kind is ObjectKind.CLUSTER
    one = snapshot.cluster if is_cluster else _one(snapshot, message.kind, message.name)
    # An object that was loaded may have no UUID, but is kept under one.
    uuid = snapshot.cluster_uuid if is_cluster else one.get("uuid", message.name)
    changed = dict(one)
    for fields, value in message.values:
        place = place_of(message.kind, uuid)
        if len(fields) > DEPTH_MAX:
            raise errors.BadRequestError(f"{place}: {_TOO_DEEP}")
        if len(fields) == 1 and fields[0] in _STAMPS:
            raise errors.BadRequestError(
                f"{place}.{fields[0]}: it is set by each change, and by nobody else"
            )
        changed = _changed(changed, fields, value)
    return checked(ObjectChange(kind=message.kind, uuid=uuid, object=changed))


def _changed(one: Mapping[str, Any], fields: Sequence[str], value: object) -> dict[str, Any]:
    field, *deeper = fields
    copy = dict(one)
    if deeper:
        inner = copy.get(field, {})
        if not isinstance(inner, dict):
            raise errors.BadRequestError(f"{field} is a value, and has no {deeper[0]}")
        copy[field] = _changed(inner, deeper, value)
    elif value is None:
        copy.pop(field, None)
    else:
        copy[field] = value
    return copy


def checked_batch(changes: Sequence[ObjectChange]) -> list[Change]:
    """The changes of one request, each as `checked`, and each of another object."""
    places: set[str] = set()
    for change in changes:
        place = place_of(change.kind, change.uuid)
        if place in places:
            raise errors.BadRequestError(f"{place}: a request changes an object once, not twice")
        places.add(place)
    return [checked(change) for change in changes]


def checked(change: ObjectChange) -> Change:
    """The change, unless filter rules have messages of their own. Raises `BadRequestError`."""
    if change.kind is ObjectKind.FILTER:
        raise errors.BadRequestError("filters: filter rules are changed by `ganger filter`")
    place = place_of(change.kind, change.uuid)
    check_depth(place, change.object)
    check_unmasked(place, change.object)
    return Change(change.kind, change.uuid, change.object, change.serial_no)


def check_depth(place: str, found: object) -> None:
    """Raise `BadRequestError` if values are nested deeper than `DEPTH_MAX`."""
    if _is_deeper(found, DEPTH_MAX):
        raise errors.BadRequestError(f"{place}: {_TOO_DEEP}")


def check_unmasked(place: str, found: object) -> None:
    """Raise `BadRequestError` if a secret is masked."""
    if is_masked(found):
        raise errors.BadRequestError(
            f"{place}: a secret is masked ({MASK}), and would be lost; change single values instead"
        )


def is_made(snapshot: Configuration, change: Change) -> bool:
    """Whether the object is as the change wants it, and has the serial number that it expects."""
    one = snapshot.get(change.kind, change.uuid)
    if one is None or change.object is None:
        return False
    is_overtaken = change.expected_serial not in (None, stamp(snapshot, change)[0])
    return not is_overtaken and _without_stamps(one) == _without_stamps(change.object)


def _without_stamps(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name not in _STAMPS}


_TOO_DEEP = f"nested deeper than {DEPTH_MAX} levels"


def _is_deeper(value: object, levels: int) -> bool:
    """Whether values are nested deeper than this; its own stack is not higher."""
    if isinstance(value, dict):
        inner: Iterable[object] = value.values()
    elif isinstance(value, list):
        inner = value
    else:
        return False
    if levels == 0:
        return True
    return any(_is_deeper(one, levels - 1) for one in inner if isinstance(one, dict | list))


def is_masked(value: object) -> bool:
    """Whether a secret in it is masked."""
    if isinstance(value, dict):
        return any(map(is_masked, value.values()))
    if isinstance(value, list):
        return any(map(is_masked, value))
    return value == MASK


def stamp(snapshot: Configuration, change: Change) -> tuple[int, float]:
    """The serial number and the time of the object after the change; (0, 0.0) if it went."""
    one = snapshot.get(change.kind, change.uuid) or {}
    return one.get("serial_no", 0), one.get("mtime", 0.0)
