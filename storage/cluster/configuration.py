"""One snapshot of the configuration, and how a batch of changes makes the next one.

A snapshot is never changed: readers keep theirs while the store goes on. The next snapshot shares
all objects with it, and copies only the containers in which something changed. The objects
themselves are decoded JSON: to have another version, copy the object, and change the copy.

Serial numbers and times follow Ganeti: a change of an object adds one to its ``serial_no`` and
sets its ``mtime``; each batch does the same at the top. No clock: the time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from .. import errors
from ..wording import type_name
from .objects import CONTAINERS, Object, ObjectKind, in_order, place_of

Names: TypeAlias = Mapping[ObjectKind, Mapping[str, tuple[str, ...]]]

_NAMED: Final = (
    ObjectKind.NODE,
    ObjectKind.NODE_GROUP,
    ObjectKind.INSTANCE,
    ObjectKind.NETWORK,
    ObjectKind.DISK,
)

ABSENT_SERIAL: Final = 0
"""The serial number to expect of an object that must not exist yet."""


class Change(msgspec.Struct, frozen=True):
    """One object's next version, or None: it goes.

    With ``expected_serial``, the change is refused unless the object has that serial number now.
    """

    kind: ObjectKind
    uuid: str
    object: dict[str, Any] | None
    expected_serial: int | None = None

    @property
    def place(self) -> str:
        """The object as errors name it."""
        return place_of(self.kind, self.uuid)


class Configuration:
    """An immutable snapshot of the whole configuration."""

    __slots__ = ("_document", "_names")

    def __init__(self, document: dict[str, Any], names: Names) -> None:
        self._document = document
        self._names = names

    @classmethod
    def load(cls, decoded: object) -> Configuration:
        """The snapshot of a decoded ``config.data``, which it takes over.

        Raises `DataDirectoryError` if the file or a container is no JSON object. Whatever else is
        wrong is a matter of `integrity`: such a configuration can be served and repaired.
        """
        if not isinstance(decoded, dict):
            raise errors.DataDirectoryError("not a configuration: expected a JSON object")
        for kind in ObjectKind:
            if not isinstance(decoded.get(kind.value, {}), dict):
                found = type_name(decoded[kind.value])
                raise errors.DataDirectoryError(f"{kind}: expected an object, got {found}")
        configuration = cls(decoded, {})
        configuration._names = {kind: configuration._names_of(kind) for kind in _NAMED}
        return configuration

    def to_document(self) -> dict[str, Any]:
        """The configuration as it is written: containers in the order of their UUIDs, as Ganeti's.

        Shares its objects with the snapshot: to be encoded, not to be changed.
        """
        document = dict(self._document)
        for kind in CONTAINERS:
            if kind in document:
                document[kind.value] = dict(sorted(document[kind.value].items()))
        return document

    @property
    def document(self) -> Mapping[str, Any]:
        """The configuration as one mapping, to be read and not to be changed. Costs nothing."""
        return MappingProxyType(self._document)

    @property
    def serial_no(self) -> int:
        """The number of the last change; 0 if the file has none."""
        return _serial_of(self._document) or 0

    @property
    def top(self) -> Object:
        """The fields beside the cluster and the containers: ``version``, serial number, times."""
        return {name: value for name, value in self._document.items() if name not in _KINDS}

    @property
    def cluster(self) -> Object:
        """The cluster object; empty if there is none."""
        found: Object = self._document.get(ObjectKind.CLUSTER.value, {})
        return found

    @property
    def cluster_uuid(self) -> str:
        """The UUID of the cluster object; empty if it has none."""
        return str(self.cluster.get("uuid", ""))

    def get(self, kind: ObjectKind, uuid: str) -> Any:  # noqa: ANN401 - decoded JSON
        """The object, not to be changed; None if there is none."""
        if kind is ObjectKind.CLUSTER:
            return self.cluster if uuid == self.cluster_uuid and self.cluster else None
        return self._container(kind).get(uuid)

    def find_by_name(self, kind: ObjectKind, name: str) -> Any:  # noqa: ANN401 - decoded JSON
        """The object of this name, not to be changed; None if there is none.

        If several have it, which only a damaged file brings about or the optional names of disks,
        this gives the one with the smallest UUID.
        """
        if kind is ObjectKind.CLUSTER:
            return self.cluster if self.cluster.get("cluster_name") == name else None
        uuids = self._names.get(kind, {}).get(name, ())
        return self.get(kind, uuids[0]) if uuids else None

    def objects(self, kind: ObjectKind) -> Iterator[tuple[str, Any]]:
        """All objects of a kind, with their UUIDs."""
        if kind is ObjectKind.CLUSTER:
            return iter([(self.cluster_uuid, self.cluster)] if self.cluster else [])
        return iter(self._container(kind).items())

    def count(self, kind: ObjectKind) -> int:
        """How many objects of a kind there are."""
        return int(bool(self.cluster)) if kind is ObjectKind.CLUSTER else len(self._container(kind))

    def changed(self, changes: Sequence[Change], now: float) -> Configuration:
        """The next snapshot, after all changes of the batch; ``now`` in seconds since the epoch.

        Raises `StaleSerialError` if an object has another serial number than a change expects, and
        `UnknownObjectError` if an object that is to go is not there, or a change is for another
        cluster. No integrity is checked: `integrity.Index` does so.
        """
        assert len({(change.kind, change.uuid) for change in changes}) == len(changes), (
            "an object is changed once in a batch"
        )
        document = dict(self._document)
        names = dict(self._names)
        for kind in dict.fromkeys(change.kind for change in changes):
            own = [change for change in changes if change.kind is kind]
            if kind is ObjectKind.CLUSTER:
                document[kind.value] = self._next_object(own[0], now)
            else:
                document[kind.value] = self._next_container(kind, own, now)
            if kind in _NAMED:
                names[kind] = self._next_names(kind, own, names.get(kind, {}))
        document["mtime"] = now
        document["serial_no"] = self.serial_no + 1
        return Configuration(document, names)

    def _container(self, kind: ObjectKind) -> dict[str, Any]:
        found: dict[str, Any] = self._document.get(kind.value, {})
        return found

    def _next_container(
        self, kind: ObjectKind, changes: Sequence[Change], now: float
    ) -> dict[str, Any]:
        container = dict(self._container(kind))
        for change in changes:
            found = self._next_object(change, now)
            if found is None:
                del container[change.uuid]
            else:
                container[change.uuid] = found
        return container

    def _next_object(self, change: Change, now: float) -> dict[str, Any] | None:
        """The object as it is stored, or None; raises what `changed` raises."""
        found = self.get(change.kind, change.uuid)
        _check_serial(change, found)
        if found is None and (change.object is None or self._is_other_cluster(change)):
            raise errors.UnknownObjectError(f"{change.place}: there is no such object")
        if change.object is None:
            if change.kind is ObjectKind.CLUSTER:
                raise errors.BadRequestError("cluster: this object cannot be removed")
            return None
        if change.kind is ObjectKind.CLUSTER and change.object.get("uuid", "") != change.uuid:
            raise errors.BadRequestError(f"cluster.uuid: it is {change.uuid}, and cannot change")
        if change.kind is ObjectKind.FILTER:
            # A rule has neither serial number nor times.
            return change.object
        stamps = {"serial_no": (_serial_of(found) or ABSENT_SERIAL) + 1, "mtime": now}
        if found is None:
            stamps["ctime"] = now
        return in_order(change.kind, {**change.object, **stamps})

    def _is_other_cluster(self, change: Change) -> bool:
        return change.kind is ObjectKind.CLUSTER and bool(self.cluster)

    # ------------------------------------------------------------ names

    def _names_of(self, kind: ObjectKind) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for uuid, item in self.objects(kind):
            name = _name_of(item)
            if name is not None:
                _insert(found, name, uuid)
        return found

    def _next_names(
        self, kind: ObjectKind, changes: Sequence[Change], names: Mapping[str, tuple[str, ...]]
    ) -> Mapping[str, tuple[str, ...]]:
        """The names after the changes; the same mapping if none of them changed."""
        renamed = [
            (change.uuid, old, new)
            for change in changes
            for old in [_name_of(self.get(kind, change.uuid))]
            for new in [_name_of(change.object)]
            if old != new
        ]
        if not renamed:
            return names
        found = dict(names)
        for uuid, old, _ in renamed:
            if old is not None:
                _remove(found, old, uuid)
        for uuid, _, new in renamed:
            if new is not None:
                _insert(found, new, uuid)
        return found


_KINDS: Final = frozenset(kind.value for kind in ObjectKind)


def _serial_of(found: object) -> int | None:
    """The serial number of an object; None if it has none."""
    serial = found.get("serial_no") if isinstance(found, dict) else None
    return serial if isinstance(serial, int) and not isinstance(serial, bool) else None


def _check_serial(change: Change, found: object) -> None:
    expected = change.expected_serial
    serial = ABSENT_SERIAL if found is None else _serial_of(found)
    if expected is None or expected == serial:
        return
    now = f"it is {serial} now" if serial is not None else "the object has none"
    if found is None:
        now = "there is no such object"
    raise errors.StaleSerialError(
        f"{change.place}: the change is for serial number {expected}, but {now}"
        if expected != ABSENT_SERIAL
        else f"{change.place}: the change is for a new object, but there is one ({now})"
    )


def _name_of(found: object) -> str | None:
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


def _insert(names: dict[str, tuple[str, ...]], name: str, uuid: str) -> None:
    names[name] = tuple(sorted((*names.get(name, ()), uuid)))


def _remove(names: dict[str, tuple[str, ...]], name: str, uuid: str) -> None:
    left = tuple(other for other in names[name] if other != uuid)
    if left:
        names[name] = left
    else:
        del names[name]
