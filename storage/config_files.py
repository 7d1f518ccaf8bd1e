"""The configuration on disk: ``config.data``, and a journal of the changes since it was written.

How it works. ``config.data`` is JSON in Ganeti's schema and holds everything. A change is appended
to the journal in ``config.journal/`` and flushed; it costs what changed. From time to time the
whole configuration is written again, and the journal begins a new segment. A record has the serial
number of the configuration that it makes, so a reader leaves out the records that are in
``config.data`` already.

Every reader sees both together. Holds no decisions.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from . import documents, errors, settings
from .queue_files import journal

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 3_000_000
"""Ganeti's configuration version: major * 1,000,000 + minor * 10,000."""

_CLUSTER = "cluster"
_CONTAINERS = ("nodes", "nodegroups", "instances", "networks", "disks", "filters")
_ENCODED_AT_ONCE = 100
_encoder = msgspec.json.Encoder()


class OpcodeAnswer(msgspec.Struct, frozen=True):
    """What an opcode of a job resulted in, and the lines that it logs."""

    job_id: int
    op_index: int
    result: Any = None
    log: list[str] = []


class ConfigChanged(msgspec.Struct, frozen=True, tag="config", array_like=True):
    """A batch of changes: the objects as they are now stored, None for one that went.

    ``serial`` and ``time`` are those of the configuration afterwards; ``who`` and ``why`` are for
    the history. ``answer``: of the opcode that made the changes. ``request``: the name of the
    request that asked for them, empty if it had none.
    """

    serial: int
    time: float
    who: str
    why: str
    objects: list[tuple[str, str, Any]]
    """Container (``nodes``, ...), UUID, object."""

    answer: OpcodeAnswer | None = None
    request: str = ""


class _Entered(msgspec.Struct, frozen=True):
    """What stands in a line of the history and matters here."""

    serial: int


_decode_entered = msgspec.json.Decoder(_Entered).decode

_CHANGE = re.compile(rb"[\x96-\x98]\xa6config")
"""Starts of changes; those of earlier versions have no answer, or no request."""

_decode = msgspec.msgpack.Decoder(journal.SegmentBegun | ConfigChanged).decode


def read(path: Path) -> dict[str, Any] | None:
    """The configuration; None if there is none.

    `DataDirectoryError` if it is malformed, or changes are lost: ``config.data`` is missing or
    older than the journal, or the journal is damaged before its end.
    """
    found, changes = read_both(path)
    if found is not None:
        for change in changes:
            apply(found, change)
    return found


def read_both(path: Path) -> tuple[dict[str, Any] | None, list[ConfigChanged]]:
    """As `read`: ``config.data``, and the changes that are newer."""
    found = read_written(path)
    while True:
        try:
            return found, list(changes_since(path, _serial_or_none(found)))
        except errors.DataDirectoryError:
            # Perhaps the daemon has written the whole meanwhile, and deleted the old segments.
            again = read_written(path)
            if _serial_or_none(again) == _serial_or_none(found):
                raise
            found = again


def read_written(path: Path) -> dict[str, Any] | None:
    """As `read`, without the changes in the journal."""
    data = documents.read(path)
    return None if data is None else decoded(data, path)


def decoded(data: bytes, path: Path) -> dict[str, Any]:
    """The configuration in the text of the file ``path``. `DataDirectoryError`."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.DataDirectoryError(f"{path}: not a configuration: {error}") from error
    _check(found, path)
    assert isinstance(found, dict)
    return found


def changes_since(path: Path, serial: int | None) -> Iterator[ConfigChanged]:
    """The changes in the journal beside ``path`` that are newer than this serial number.

    `DataDirectoryError` if one is missing between them; with None, as there is no ``config.data``,
    if there is any.
    """
    directory = journal_directory(path)
    for segment in journal.segments(directory):
        for change in _records(segment):
            if serial is None:
                raise errors.DataDirectoryError(
                    f"{path}: there is none, but {directory.name} has changes of it; put a copy "
                    f"of the file back, or move {directory.name} away to begin anew"
                )
            if change.serial > serial + 1:
                raise errors.DataDirectoryError(
                    f"{path}: with the journal it ends at serial number {serial}, but "
                    f"{directory.name} goes on with {change.serial}; put a newer copy of the file "
                    f"back, or move {directory.name} away to lose its changes"
                )
            if change.serial > serial:
                serial = change.serial
                yield change


def last_entered(history: Path) -> int | None:
    """The serial number of the newest entry of the history; None if it has none.

    `StorageError` if it cannot be read. A torn line, which a loss of power leaves, is no entry.
    """
    for line in documents.last_lines(history):
        with contextlib.suppress(msgspec.DecodeError):
            return _decode_entered(line).serial
    return None


def apply(document: dict[str, Any], change: ConfigChanged) -> None:
    """Make the change in a decoded configuration; its containers are copied, not changed."""
    copied: set[str] = set()
    for container, uuid, found in change.objects:
        if container == _CLUSTER:
            document[_CLUSTER] = found
            continue
        if container not in copied:
            document[container] = dict(document.get(container, {}))
            copied.add(container)
        if found is None:
            document[container].pop(uuid, None)
        else:
            document[container][uuid] = found
    document["serial_no"], document["mtime"] = change.serial, change.time


def write(path: Path, configuration: dict[str, Any]) -> None:
    """Replace ``config.data``, durably. Newer changes in the journal stay."""
    documents.replace(path, encoded(configuration), flush=True)


def encoded(configuration: dict[str, Any]) -> bytearray:
    """The bytes of ``config.data``, as one call of the encoder gives them.

    Some objects are encoded at a time: no other thread runs meanwhile.
    """
    data = bytearray()
    for name, value in configuration.items():
        if not (value and isinstance(value, dict) and name in _CONTAINERS):
            _add_pairs(data, {name: value}, is_first=not data)
            continue
        _add_pairs(data, {name: {}}, is_first=not data)
        del data[-3:]
        objects, is_first = iter(value.items()), True
        while some := dict(itertools.islice(objects, _ENCODED_AT_ONCE)):
            _add_pairs(data, some, is_first=is_first)
            is_first = False
        data += b"}"
    return data or bytearray(b"{}")


def _add_pairs(data: bytearray, pairs: dict[str, Any], *, is_first: bool) -> None:
    """Add a JSON object at the end, or these pairs to the object that ends there."""
    start = len(data) if is_first else len(data) - 1
    _encoder.encode_into(pairs, data, start)
    if not is_first:
        data[start : start + 1] = b","


def journal_directory(path: Path) -> Path:
    """The directory of the journal beside ``path``."""
    return path.with_name("config.journal")


def serial_of(configuration: dict[str, Any]) -> int:
    """The number of the last change; 0 if there is none that makes sense."""
    serial = configuration.get("serial_no", 0)
    return serial if isinstance(serial, int) else 0


def _serial_or_none(configuration: dict[str, Any] | None) -> int | None:
    return None if configuration is None else serial_of(configuration)


def first_configuration(uuid: str, now: float) -> dict[str, Any]:
    """The configuration of a new data directory: no nodes, no rules, the default limits."""
    stamps = {"ctime": now, "mtime": now, "serial_no": 1}
    cluster = {
        "cluster_name": "ganger",
        "uuid": uuid,
        "max_running_jobs": settings.RUNNING_JOBS_MAX,
        "max_tracked_jobs": settings.TRACKED_JOBS_MAX,
        "tags": [],
        **stamps,
    }
    containers: dict[str, dict[str, Any]] = {name: {} for name in _CONTAINERS}
    return {"version": VERSION, "cluster": cluster, **containers, **stamps}


def _check(found: object, path: Path) -> None:
    if not isinstance(found, dict):
        raise errors.DataDirectoryError(f"{path}: not a configuration: expected a JSON object")
    for key in (_CLUSTER, *_CONTAINERS):
        if not isinstance(found.get(key, {}), dict):
            raise errors.DataDirectoryError(f"{path}: {key}: expected an object")
    limit = found.get("cluster", {}).get("max_running_jobs", 1)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        message = f"{path}: cluster.max_running_jobs: expected a positive integer, got {limit!r}"
        raise errors.DataDirectoryError(message)


def _records(path: Path) -> Iterator[ConfigChanged]:
    """The changes in one segment, up to a torn end, which was never acknowledged."""
    data, end = documents.read(path) or b"", 0
    for record, after in journal.records_in(data, path, _decode):
        end = after
        if isinstance(record, ConfigChanged):
            yield record
    left = journal.tail_behind(data, end, _CHANGE)
    if left is not None and left.has_records:
        raise errors.DataDirectoryError(
            f"{path}: damaged at byte {end}, with whole changes behind it; put back a copy of "
            "the file, or move it away to lose its changes"
        )
