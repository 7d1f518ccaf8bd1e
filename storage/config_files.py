"""The configuration on disk: ``config.data``, and the changes since it was written.

How it works. ``config.data`` is JSON in Ganeti's schema and holds everything. A change is appended
to the log (`config_log`) and flushed; it costs what changed. From time to time the whole
configuration is written again, and then the log says so. A record has the serial number of the
configuration that it makes, so a reader leaves out the records that are in ``config.data`` already.

The whole is written twice: ``config.data.copy`` has the same content. The log keeps a change until
both are flushed, so if ``config.data`` cannot be read, its copy and the log together still hold
every change.

Every reader sees all of it together. Holds no decisions.
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from . import config_log, errors, settings
from .cluster import shapes
from .disk import documents, line_files
from .log.records import ConfigChanged

VERSION = 3_000_000
"""Ganeti's configuration version: major * 1,000,000 + minor * 10,000."""

_CLUSTER = "cluster"
_CONTAINERS = ("nodes", "nodegroups", "instances", "networks", "disks", "filters")
_ENCODED_AT_ONCE = 100
_encoder = msgspec.json.Encoder()


class KeyedReply(msgspec.Struct, frozen=True):
    """What a line of the history says of a request with a key: the reply that it got.

    ``digest`` tells it from another request; empty: an earlier version stored no reply.
    """

    serial: int
    who: str
    request: str = ""
    digest: str = ""
    reply: Any = None


class _Entered(msgspec.Struct, frozen=True):
    """What stands in a line of the history and matters here."""

    serial: int


_decode_entered = msgspec.json.Decoder(_Entered).decode
_decode_reply = msgspec.json.Decoder(KeyedReply).decode


class Stored(NamedTuple):
    """What the files hold: a whole configuration (None: there is none), and newer changes."""

    whole: dict[str, Any] | None
    changes: list[ConfigChanged]
    damaged: list[Path]
    """Segments of the log with records that are left out, because one before is damaged."""

    problem: str
    """What is wrong with ``config.data``, if the whole is from its copy."""

    newest: int = 0
    """The serial number after the last change in the log."""


def read(path: Path) -> dict[str, Any] | None:
    """The configuration; None if there is none. Raises as `read_stored`."""
    return brought_up(read_stored(path))


def brought_up(found: Stored) -> dict[str, Any] | None:
    """The whole configuration with the newer changes, which are made in it; None if none."""
    if found.whole is not None:
        for change in found.changes:
            apply(found.whole, change)
    return found.whole


def read_stored(path: Path) -> Stored:
    """What ``config.data`` (or its copy, if it cannot be read) and the log hold.

    `DataDirectoryError` or `StorageError` if neither can be read, or the changes in the log are
    not those of this configuration: it is missing, or an older one was put in its place.
    """
    found, problem = _read_whole(path)
    while True:
        serial = _serial_or_none(found)
        refusal = None
        try:
            logged = config_log.changes_since(path, serial)
            if logged.missing:
                refusal = _older(path, serial or 0, logged)
        except errors.DataDirectoryError as error:
            refusal = error
        if refusal is None and logged.written <= (serial or 0):
            return Stored(found, logged.changes, logged.damaged, problem, logged.newest)
        # Perhaps the daemon has written the whole meanwhile, and the log forgets what it has.
        again, problem = _read_whole(path)
        if _serial_or_none(again) != serial:
            found = again
        elif refusal is not None:
            raise refusal
        else:
            # An older file was put in its place.
            return Stored(found, logged.changes, logged.damaged, problem, logged.newest)


def _older(path: Path, serial: int, logged: config_log.Found) -> errors.DataDirectoryError:
    ends = logged.changes[-1].serial if logged.changes else serial
    copy = _read_copy(path)
    is_newer = copy is not None and serial_of(copy) >= logged.missing - 1
    known = f", such as {copy_path(path).name}" if is_newer else ""
    return errors.DataDirectoryError(
        f"{path}: with the log it ends at serial number {ends}, but the log goes on with "
        f"{logged.missing}; put a newer copy of the file back{known}"
    )


def _read_whole(path: Path) -> tuple[dict[str, Any] | None, str]:
    """The configuration without newer changes, and why it is not that of ``config.data``."""
    try:
        found = read_written(path)
    except errors.OperatorError as error:
        copy = _read_copy(path)
        if copy is None:
            raise
        return copy, error.text
    if found is None and (copy := _read_copy(path)) is not None:
        return copy, f"{path}: there is none"
    return found, ""


def _read_copy(path: Path) -> dict[str, Any] | None:
    try:
        return read_written(copy_path(path))
    except errors.OperatorError:
        return None


def read_written(path: Path) -> dict[str, Any] | None:
    """What this file alone holds; None if there is none, an error if it cannot be served."""
    data = documents.read(path)
    found = None if data is None else decoded(data, path)
    if found is not None and (problem := shapes.unservable(found)) is not None:
        raise errors.DataDirectoryError(f"{path}: {problem}")
    return found


def decoded(data: bytes, path: Path) -> dict[str, Any]:
    """The configuration in the text of the file ``path``. `DataDirectoryError`."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.DataDirectoryError(f"{path}: not a configuration: {error}") from error
    _check(found, path)
    assert isinstance(found, dict)
    return found


def last_entered(history: Path) -> int | None:
    """The serial number of the newest entry of the history; None if it has none.

    `StorageError` if it cannot be read. A torn line, which a loss of power leaves, is no entry.
    """
    for line in line_files.last_lines(history):
        with contextlib.suppress(msgspec.DecodeError):
            return _decode_entered(line).serial
    return None


def cut_history(history: Path, serial: int) -> None:
    """Cut off the entries behind that of the serial number, torn ones too. `StorageError`."""

    def is_kept(line: bytes) -> bool:
        with contextlib.suppress(msgspec.DecodeError):
            return _decode_entered(line).serial <= serial
        return False

    line_files.cut_behind(history, is_kept)


def last_replies(history: Path, count: int, size: int) -> list[KeyedReply]:
    """The replies among the last lines of the history, oldest first, up to a number and a size."""
    found: list[KeyedReply] = []
    for line in itertools.islice(line_files.last_lines(history), count):
        size -= len(line)
        if size < 0:
            break
        with contextlib.suppress(msgspec.DecodeError):
            reply = _decode_reply(line)
            if reply.digest:
                found.append(reply)
    return found[::-1]


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
    """Replace ``config.data`` and its copy, durably. Newer changes in the journal stay."""
    data = encoded(configuration)
    for one in (path, copy_path(path)):
        documents.replace(one, data, flush=True)


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


def copy_path(path: Path) -> Path:
    """The copy of ``path``."""
    return path.with_name(f"{path.name}.copy")


def serial_of(configuration: dict[str, Any]) -> int:
    """The number of the last change; 0 if there is none that makes sense."""
    serial = configuration.get("serial_no", 0)
    return serial if isinstance(serial, int) else 0


def _serial_or_none(configuration: dict[str, Any] | None) -> int | None:
    return None if configuration is None else serial_of(configuration)


def first_configuration(uuid: str, now: float, *, is_node: bool = False) -> dict[str, Any]:
    """The configuration of a new data directory: no nodes, no rules, the default limits.

    ``is_node``: of a node daemon, which leaves it to its master how much runs.
    """
    stamps = {"ctime": now, "mtime": now, "serial_no": 1}
    cluster = {
        "cluster_name": "ganger",
        "uuid": uuid,
        "max_running_jobs": settings.NODE_TASKS_MAX if is_node else settings.RUNNING_JOBS_MAX,
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
