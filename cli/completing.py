"""What a shell offers as completions: ids and names of jobs, rules, locks, opcodes, files.

Each key that a user presses starts a process, so this asks the daemon at its local socket by
itself: to import the client library would take longer than all else. Without an answer, soon and
well formed, there are no completions.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..storage import errors
from ..storage.jobs import origins
from ..transport.zmq import zmtp
from .call import Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from click.shell_completion import CompletionItem

SECONDS_MAX = 0.5
"""How long the daemon may take."""

_JOBS_MAX = 100
_REPLY_BYTES_MAX = 8 * 1024 * 1024
_READ_BYTES = 64 * 1024
_PROTOCOL = 1


def asked(call: Call, request: dict[str, Any]) -> dict[str, Any]:
    """The daemon's reply, without its type; empty if there is none."""
    try:
        with open(call.places.endpoint_file, "rb") as stream:  # noqa: PTH123 - pathlib is slower
            path = msgspec.json.decode(stream.read())["socket"]
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS_MAX)
            connection.connect(path)
            reply = _spoken(
                connection, msgspec.msgpack.encode([_PROTOCOL, 1, SECONDS_MAX, request])
            )
    except (
        OSError,
        errors.GangerError,
        zmtp.ProtocolError,
        msgspec.MsgspecError,
        LookupError,
        TypeError,
    ):
        return {}
    return reply if isinstance(reply, dict) else {}


def _spoken(connection: socket.socket, frame: bytes) -> object:
    """Send one frame, and read the one that comes back; its message."""
    reader = zmtp.Reader(_REPLY_BYTES_MAX)
    connection.sendall(zmtp.GREETING + zmtp.ready(b"DEALER") + zmtp.framed(frame))
    while not reader.items:
        data = connection.recv(_READ_BYTES)
        if not data:
            return None
        reader.feed(data)
    found = msgspec.msgpack.decode(reader.items[0])
    return found[-1] if isinstance(found, list) else None


def _call(context: click.Context) -> Call:
    # For a completion click calls no group, so that there is no `Call` yet.
    return Call(data=context.find_root().params.get("data"))


def _items(found: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for shells

    words = {word: text for word, text in found if word.startswith(incomplete)}
    return [CompletionItem(word, help=text or None) for word, text in words.items()]


def jobs(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Ids of the newest live jobs, their names and those of their plans, and ``@last``."""
    request: dict[str, Any] = {"type": "list_jobs", "newest_first": True, "limit": _JOBS_MAX}
    if incomplete and origins.is_name(incomplete):
        request |= {"wanted": {"name": f"{incomplete}*"}, "archived": True}
    rows = asked(_call(context), request).get("rows", [])
    given = {str(word) for word in context.params.get("ids") or ()}
    found = (one for one in _of_jobs(rows) if one[0] not in given)
    return _items(found, incomplete)


def jobs_of_option(context: click.Context, _: click.Parameter, word: str) -> list[CompletionItem]:
    """As `jobs`, for an option with a job in its value."""
    return jobs(context, word)


def _of_jobs(rows: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    yield origins.LAST, "the newest job that you have submitted"
    for row in rows:
        text = f"{row['status']} {row['summary']}"
        yield str(row["id"]), text
        if row.get("name"):
            yield row["name"], f"job {row['id']}: {text}"
        if row.get("plan"):
            yield row["plan"], "a plan"


def rules(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names and UUIDs of filter rules."""
    given = context.params.get("uuids") or ()
    found = (
        (word, f"{_action(row['action'])} {_reason(row)}".strip())
        for row in asked(_call(context), {"type": "list_filters"}).get("filters", [])
        for word in (row.get("name"), row["uuid"])
        if word and word not in given
    )
    return _items(found, incomplete)


def holds(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The locks and jobs that are held."""
    from ..storage.filters.rules import HOLD_PREFIX  # noqa: PLC0415 - other completions need none

    given = context.params.get("targets") or ()
    found = (
        (row["name"].removeprefix(HOLD_PREFIX), _reason(row))
        for row in asked(_call(context), {"type": "list_filters"}).get("filters", [])
        if row.get("name", "").startswith(HOLD_PREFIX)
    )
    return _items((one for one in found if one[0] not in given), incomplete)


def _action(action: object) -> str:
    return " ".join(map(str, action)) if isinstance(action, list) else str(action)


def _reason(row: dict[str, Any]) -> str:
    trail = row.get("reason_trail") or [["", ""]]
    return str(trail[0][1])


def locks(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Levels of locks; behind a level the locks that are held or wanted."""
    level, slash, _rest = incomplete.partition("/")
    if not slash:
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for shells

        levels = (level for level in _LEVELS if level.startswith(incomplete))
        return [CompletionItem(f"{level}/") for level in levels]
    rows = asked(_call(context), {"type": "list_locks"}).get("rows", [])
    names = (row["name"] for row in rows if not row["name"].endswith("[lockset]"))
    return _items([(f"{level}/*", "the whole level"), *((name, "") for name in names)], incomplete)


_LEVELS = ("instance", "nodegroup", "node", "node-res", "network")
"""The levels that commands may declare (`storage.opcodes.LockNeeds`)."""


def opcodes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Opcodes that are known here."""
    from ..storage.opcodes import catalogue  # noqa: PLC0415 - other completions need none

    return _items([(op_id, "") for op_id in catalogue.known_ids()], incomplete.upper())


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, which the shell knows."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for shells

    return [CompletionItem(incomplete, type="file")]
