"""What config.data, the users file and watcher.pause of Ganeti say: contents in, values out.

No files: ``source`` reads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ... import config_files, errors
from ...access import rapi_settings, rapi_users
from ...cluster import integrity, shapes
from ...cluster.configuration import Configuration
from ...filters import filters, rules
from ...wording import counted
from .. import watcher_pause

_VERSION_STEP = 10_000
_MAJOR_STEP = 1_000_000
_CONTAINERS = ("nodegroups", "nodes", "instances", "networks")
_PROBLEMS_SHOWN_MAX = 3
_GANETIS_SEARCHLESS = ("reason", "jobid")
"""Predicates in which Ganeti finds that a regular expression never matches."""


class Damage(msgspec.Struct, frozen=True):
    """Something that cannot be taken over; it is left out if the user says so."""

    path: str
    text: str


class FoundConfig(msgspec.Struct):
    """What a config.data says."""

    data: bytes
    cluster: str
    serial: int
    objects: dict[str, int]
    """How many there are of each kind."""

    rules: int
    damage: list[Damage]
    notes: list[str]


class FoundUsers(msgspec.Struct):
    """The lines of a users file that Ganger understands, comments included."""

    data: bytes = b""
    count: int = 0
    damage: list[Damage] = []


def configuration(data: bytes, path: str) -> FoundConfig:
    """`DataDirectoryError` if it is no configuration of Ganeti 3.0."""
    document = config_files.decoded(data, Path(path))
    _require_version(document.get("version"), path)
    if "cluster" not in document:
        raise errors.DataDirectoryError(f"{path}: not a configuration: it has no cluster")
    if (problem := shapes.unservable(document)) is not None:
        raise errors.DataDirectoryError(f"{path}: {problem}")
    serial = document.get("serial_no")
    if not isinstance(serial, int) or isinstance(serial, bool) or serial < 0:
        raise errors.DataDirectoryError(f"{path}: serial_no: expected a number from 0 on")
    stored = document.get("filters", {})
    parsed = rules.parse_rules(stored)
    found = FoundConfig(
        data=data,
        cluster=str(document["cluster"].get("cluster_name", "")),
        serial=serial,
        objects={name: len(document.get(name, {})) for name in _CONTAINERS},
        rules=len(stored),
        damage=[
            Damage(path, f"{error.text}; the rule would not be obeyed") for error in parsed.problems
        ],
        notes=_changed_rules(stored),
    )
    if (problem := shapes.problem(document)) is not None:
        found.damage.append(Damage(path, f"{problem}; what needs it would fail"))
    elif problems := integrity.problems(Configuration.load(document)):
        shown = "; ".join(problems[:_PROBLEMS_SHOWN_MAX])
        left = len(problems) - _PROBLEMS_SHOWN_MAX
        more = f"; and {left} more" if left > 0 else ""
        found.notes.append(f"{path}: contradicts itself and is taken over as it is: {shown}{more}")
    return found


def _require_version(version: object, path: str) -> None:
    if version == config_files.VERSION and not isinstance(version, bool):
        return
    expected = f"expected {config_files.VERSION} (Ganeti {_release(config_files.VERSION)})"
    if not isinstance(version, int):
        raise errors.DataDirectoryError(f"{path}: not a configuration: version: {expected}")
    text = f"{path}: version {version} (Ganeti {_release(version)}), {expected}"
    raise errors.DataDirectoryError(f"{text}; Ganeti's own tools convert it")


def _release(version: int) -> str:
    """The release of Ganeti that writes this version.

    >>> _release(3010000), _release(2160000)
    ('3.1', '2.16')
    """
    return f"{version // _MAJOR_STEP}.{version % _MAJOR_STEP // _VERSION_STEP}"


def _changed_rules(stored: dict[str, Any]) -> list[str]:
    """A note for each rule that means more here than in Ganeti."""
    return [
        f"filter rule {uuid}: a regular expression (=~) on {name} never matches in Ganeti; "
        "here it does"
        for uuid, raw in stored.items()
        for name in _GANETIS_SEARCHLESS
        if isinstance(raw, dict) and _searches_in(raw.get("predicates"), name)
    ]


def _searches_in(predicates: object, name: str) -> int:
    found = 0
    for predicate in predicates if isinstance(predicates, list) else ():
        match predicate:
            case [str(given), expression] if given == name:
                found += filters.searches(expression)
    return found


def users(data: bytes, path: str, *, is_open_to_all: bool) -> FoundUsers:
    """The users that can be taken over, each line by itself; what is wrong with the others."""
    if is_open_to_all:
        text = "every user may write into it, and so give himself rights; no user is taken over"
        return FoundUsers(damage=[Damage(path, text)])
    if len(data) > rapi_settings.USERS_BYTES_MAX:
        text = f"larger than {rapi_settings.USERS_BYTES_MAX} bytes; no user is taken over"
        return FoundUsers(damage=[Damage(path, text)])
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        return FoundUsers(damage=[Damage(path, "not UTF-8; no user is taken over")])
    kept: list[str] = []
    known: dict[str, int] = {}
    found = FoundUsers()
    for number, line in enumerate(lines, start=1):
        try:
            _enter_user(line, number, known)
        except errors.BadRequestError as error:
            text = f"line {number}: {error.text}; the user is left out"
            found.damage.append(Damage(path, text))
        else:
            kept.append(line)
    found.data = "\n".join(kept).encode()
    found.count = len(known)
    return found


def _enter_user(line: str, number: int, known: dict[str, int]) -> None:
    """Note the user of this line, if it has one, under his name. `BadRequestError`."""
    try:
        parsed = rapi_users.parse(line)
    except errors.BadRequestError as error:
        # It calls the line the first one.
        raise errors.BadRequestError(error.text.partition(": ")[2]) from None
    for user in parsed.values():
        if user.name in known:
            text = f"user {user.name} is in line {known[user.name]} already"
            raise errors.BadRequestError(text)
        if len(known) == rapi_settings.USERS_MAX:
            raise errors.BadRequestError(f"more than {len(known)} users")
        known[user.name] = number


def pause(data: bytes) -> float | None:
    """When the watcher's pause ends, in seconds since the epoch; None if that is no time."""
    try:
        until = float(data)
    except ValueError:
        return None
    return until if 0 <= until <= watcher_pause.UNTIL_MAX else None


def described(objects: dict[str, int]) -> str:
    """The numbers of objects as a sentence has them: ``1 group, 2 nodes``."""
    nouns = {"nodegroups": "group", "nodes": "node", "instances": "instance", "networks": "network"}
    return ", ".join(counted(count, nouns[name]) for name, count in objects.items())
