"""The differences of two snapshots of the configuration, field by field, without its secrets.

What both snapshots share is not looked at: the cost follows what changed between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from .configuration import Configuration
from .objects import CONTAINERS, ObjectKind, place_of

MASK: Final = "<redacted>"
"""Stands for a secret. If only a secret changed, both sides of the difference are this text."""

SECRET_FIELDS: Final = frozenset(
    {
        "osparams_private",
        "osparams_private_cluster",
        "osparams_secret",
        "rapi_password",
        "spice_password",
        "spice_password_file",
        "vnc_password",
        "vnc_password_file",
    }
)
"""Fields whose values are secret, wherever they stand. The keys below them are shown."""

DRBD_SECRET_INDEX: Final = 5
"""The place of the secret in the ``logical_id`` of a DRBD disk."""

_ABSENT: Final = object()


class Difference(NamedTuple):
    """One field, with both values as JSON; None: it was, or is, absent."""

    path: str
    before: str | None
    after: str | None


def differences(before: Configuration, after: Configuration) -> list[Difference]:
    """What differs, in the order of the document; an object that came or went is one line."""
    found = list(_compared("", dict(before.top), dict(after.top)))
    found += _compared("cluster", dict(before.cluster), dict(after.cluster))
    for kind in CONTAINERS:
        old, new = dict(before.objects(kind)), dict(after.objects(kind))
        for uuid in sorted(key for key in old | new if old.get(key) is not new.get(key)):
            pair = old.get(uuid, _ABSENT), new.get(uuid, _ABSENT)
            found += _compared(place_of(kind, uuid), *pair)
    return found


def differences_of(
    before: Configuration, after: Configuration, objects: Iterable[tuple[ObjectKind, str]]
) -> list[Difference]:
    """As `differences`, of these objects alone; costs what they hold."""
    found: list[Difference] = []
    for kind, uuid in objects:
        old, new = before.get(kind, uuid), after.get(kind, uuid)
        pair = _ABSENT if old is None else old, _ABSENT if new is None else new
        place = kind.value if kind is ObjectKind.CLUSTER else place_of(kind, uuid)
        found += _compared(place, *pair)
    return found


def masked(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """The value, with every secret in it replaced by `MASK`."""
    if isinstance(value, dict):
        return {key: _masking(key, value)(item) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return value


def _masking(key: str, *holders: object) -> Callable[[Any], Any]:
    """What hides the secrets in the value of this field, in any of the objects that have it."""
    if key in SECRET_FIELDS:
        return _hidden
    if key == "logical_id" and any(map(_is_drbd, holders)):
        return _without_drbd_secret
    return masked


def _hidden(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """The value with all that is not a key hidden."""
    if isinstance(value, dict):
        return {key: _hidden(item) for key, item in value.items()}
    return MASK


def _without_drbd_secret(identity: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """The identity with all hidden that is no node, port or minor number."""
    if not isinstance(identity, list):
        return MASK
    return [item if at < DRBD_SECRET_INDEX else MASK for at, item in enumerate(identity)]


def _is_drbd(found: object) -> bool:
    return isinstance(found, dict) and found.get("dev_type") == "drbd"


def _compared(
    path: str, old: object, new: object, masking: Callable[[Any], Any] = masked
) -> Iterator[Difference]:
    """The differences of two values at this path, whose secrets ``masking`` hides."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            one, other = old.get(key, _ABSENT), new.get(key, _ABSENT)
            if one is not other:
                inner = _masking(key, old, new) if masking is masked else masking
                yield from _compared(f"{path}.{key}" if path else key, one, other, inner)
        return
    if _json(old) == _json(new):
        return
    parts = _parts(old), _parts(new)
    if masking is masked and parts[0] is not None and parts[1] is not None:
        for uuid in parts[0] | parts[1]:
            pair = parts[0].get(uuid, _ABSENT), parts[1].get(uuid, _ABSENT)
            yield from _compared(f"{path}[{uuid}]", *pair)
        old, new = list(parts[0]), list(parts[1])
        if set(old) != set(new) or old == new:
            return
        # Only their order differs.
    before, after = (_json(_ABSENT if value is _ABSENT else masking(value)) for value in (old, new))
    yield Difference(path, before, after)


def _json(value: object) -> str | None:
    """The value as JSON, which tells 1 from 1.0 and true; None if it is absent."""
    return None if value is _ABSENT else msgspec.json.encode(value).decode()


def _parts(value: object) -> dict[str, Any] | None:
    """The parts of an object by their UUIDs, such as NICs; None if the value is no list of such."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return None
    uuids = [item.get("uuid") for item in value]
    if not all(isinstance(uuid, str) for uuid in uuids) or len({*uuids}) < len(uuids):
        return None
    return dict(zip(uuids, value, strict=True))
