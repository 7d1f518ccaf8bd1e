"""A state directory of Ganeti, such as ``/var/lib/ganeti``: what it holds, whether it is in use.

Changes nothing in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from ... import errors, wording
from ...disk import documents, ownership
from . import import_decision, parts, queues, read_only_source
from .import_decision import Outcome
from .parts import Damage, FoundConfig, FoundUsers
from .queues import FoundQueue, Living, Progress

DEBIANS_PLACE = "var/lib/ganeti"
"""Where Ganeti keeps its state, below the root directory or GANETI_ROOTDIR."""

_TAKEN = ("queue", "config.data", "rapi", "watcher.pause")
_MADE_ANEW = "ssconf_"
_OURS = ("queue/journal", "config.journal", "daemon.json")
_SHOWN_MAX = 5
_LIVELOCK_MARK = "/livelocks/"


class Source(msgspec.Struct):
    """What a state directory holds that can be taken over."""

    path: str
    config: FoundConfig
    queue: FoundQueue
    users: FoundUsers | None = None
    pause: bytes | None = None
    """The content of ``watcher.pause``."""

    damage: list[Damage] = []
    """Everything that cannot be taken over."""

    notes: list[str] = []
    others: list[str] = []
    """What else lies in the directory, and stays there."""

    stamps: dict[str, read_only_source.Stamp | None] = {}

    def require_unchanged(self) -> None:
        """Raise `OperatorError` if anything has changed since it was read, or LuxiD has begun."""
        for path, stamp in self.stamps.items():
            if read_only_source.stamp_of(path) != stamp:
                text = f"{path}: changed while it was read; stop what works in {self.path} first"
                raise errors.OperatorError(text)
        if (living := queues.luxid(f"{self.path}/queue")) is not None:
            _require_ended([living])


def find(directory: str) -> str:
    """The state directory itself, also below a root directory. `DataDirectoryError`."""
    path = os.path.realpath(directory)
    if not _exists(path):
        raise errors.DataDirectoryError(f"{path}: there is no such directory")
    ownership.require_readable(path)
    if not os.path.isdir(path):
        raise errors.DataDirectoryError(f"{path}: not a directory")
    below = os.path.join(path, DEBIANS_PLACE)
    if not _exists(f"{path}/config.data") and _exists(below):
        path = os.path.realpath(below)
        ownership.require_readable(path)
    ownership.require_readable(f"{path}/queue")
    for name in _OURS:
        if _exists(f"{path}/{name}"):
            raise errors.DataDirectoryError(f"{path}: a data directory of Ganger, not of Ganeti")
    if _exists(f"{path}/serial") and not _exists(f"{path}/queue"):
        raise errors.DataDirectoryError(f"{path}: a queue directory; name the one that holds it")
    for name in ("config.data", "queue"):
        if not _exists(f"{path}/{name}"):
            text = f"{path}: not a state directory of Ganeti: it has no {name}"
            raise errors.DataDirectoryError(text)
    return path


def survey(path: str, progress: Progress) -> Source:
    """Read everything in a directory that `find` has found.

    `DataDirectoryError` if it cannot be taken over; `OperatorError` if a process of Ganeti still
    works in it; `StorageError` if it cannot be read.
    """
    stamps: dict[str, read_only_source.Stamp | None] = {}

    def content(name: str) -> read_only_source.Content | None:
        found = read_only_source.read(f"{path}/{name}")
        stamps[f"{path}/{name}"] = None if found is None else found.stamp
        return found

    config = content("config.data")
    if config is None:
        raise errors.DataDirectoryError(f"{path}/config.data: there is none")
    found_config = parts.configuration(config.data, f"{path}/config.data")
    queue = queues.read_queue(f"{path}/queue", progress)
    locks = content("locks.data")
    _require_ended([*queue.living, *_owners(locks, queue.living)])
    found = Source(path, found_config, queue, stamps=stamps | queue.stamps)
    found.damage = [*found_config.damage, *queue.damage]
    found.notes = [*found_config.notes, *queue.notes]
    users = content("rapi/users")
    if users is not None:
        is_open = bool(users.mode & 0o002)
        found.users = parts.users(users.data, f"{path}/rapi/users", is_open_to_all=is_open)
        found.damage += found.users.damage
    pause = content("watcher.pause")
    if pause is not None and parts.pause(pause.data) is None:
        found.damage.append(Damage(f"{path}/watcher.pause", "not a time; it is left out"))
    elif pause is not None:
        found.pause = pause.data
    with read_only_source.Folder(path) as folder:
        names = folder.names()
    found.others = [
        name for name in names if name not in _TAKEN and not name.startswith(_MADE_ANEW)
    ]
    found.stamps |= stamps
    return found


def require_stopped(found: Source) -> None:
    """Raise `OperatorError` if LuxiD may go on elsewhere with the jobs that would run here.

    LuxiD removes its lock file when it ends: a copy that has the file was made while LuxiD ran.
    """
    pending = found.queue.count(Outcome.PENDING)
    if found.queue.is_lock_left and pending:
        what = wording.counted(pending, "pending job")
        raise errors.OperatorError(
            f"{found.path}/queue/lock is left over: LuxiD was killed, or this is a copy made while "
            f"it ran, and {what} would run here and perhaps there; make sure that LuxiD runs "
            "nowhere, then add --stopped"
        )


def _owners(locks: read_only_source.Content | None, known: list[Living]) -> Iterator[Living]:
    """The processes that live among those that WConfD has noted as owners of locks."""
    if locks is None:
        return
    try:
        document = msgspec.json.decode(locks.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    pids = {one.pid for one in known}
    for lock_file in sorted(set(_lock_files(document))):
        pid = read_only_source.holder(lock_file)
        if (
            pid is not None
            and (pid == 0 or pid not in pids)
            and not import_decision.is_luxids(lock_file)
        ):
            yield Living("a process that owns locks", pid)


def _lock_files(document: Any) -> Iterator[str]:  # noqa: ANN401 - decoded JSON
    """Every name of a lock file in it, wherever that stands."""
    left = [document]
    while left:
        match left.pop():
            case [*parts_]:
                left += parts_
            case str(text) if text.startswith("/") and _LIVELOCK_MARK in text:
                yield text


def _require_ended(living: list[Living]) -> None:
    if not living:
        return
    shown = ", ".join(_worded(one) for one in living[:_SHOWN_MAX])
    left = len(living) - _SHOWN_MAX
    more = f" and {left} more" if left > 0 else ""
    text = f"Ganeti still works: {shown}{more}; stop it, and wait until its jobs have ended"
    raise errors.OperatorError(text)


def _worded(one: Living) -> str:
    return f"{one.what} (pid {one.pid})" if one.pid else one.what


def _exists(path: str) -> bool:
    """Whether there is such a file; `StorageError` if that cannot be known."""
    with documents.storage_errors(path):
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True
