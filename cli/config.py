"""``ganger config``: the objects of the configuration, and who changed what.

A path names an object, or a value in it: ``cluster/candidate_pool_size``,
``nodes/node1.example.com/ndparams/ssh_port``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..storage.wording import shortened, shown
from . import choices, output, repeating

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..transport.client.client import Client
    from ..transport.messages import HistoryLine
    from .call import Call

_CLUSTER = "cluster"

_STAMPS = ("mtime", "serial_no")
"""Fields that each change changes: people are not shown these."""


@click.group()
def config() -> None:
    """Read and change the configuration, and see who changed it."""


@config.command(short_help="Print a part of the configuration.")
@click.argument("path")
@click.pass_obj
def get(call: Call, path: str) -> None:
    """Print a part of the configuration as JSON.

    PATH is a kind (cluster, nodes, nodegroups, instances, networks, disks, filters), an object
    (nodes/node1.example.com, by name or UUID), or a value in one (cluster/candidate_pool_size).
    Secrets are masked.
    """
    kind, name, fields = _parsed(path)
    with call.client() as client:
        if name is None:
            output.show_json(client.objects(kind))
            return
        found = _object(client, kind, name)
    output.show_json(_value(found, fields, path))


@config.command("set", short_help="Change one value.")
@click.argument("path")
@click.argument("value")
@click.option("--why", metavar="TEXT", default="", help="Why; kept in the history.")
@repeating.key_option()
@click.pass_obj
def set_value(call: Call, *, path: str, value: str, why: str, key: str | None) -> None:
    """Change one value of an object of the configuration.

    VALUE is JSON (5, true, {"a": 1}); anything else is a text. null removes the field. The change
    is checked against the whole configuration.
    """
    kind, name, fields = _parsed(path)
    if name is None or not fields:
        raise click.UsageError(f"{path} names no value: give KIND/NAME/FIELD, or cluster/FIELD")
    values = {"/".join(fields): json_value(value)}
    with call.client() as client, repeating.under(key) as used:
        client.set_values(kind, name, values, why=why, key=used)


@config.command(short_help="Show who changed what, when and why.")
@click.option(
    "-n",
    "--count",
    type=choices.WholeRange(1, 1_000),
    default=20,
    show_default=True,
    help="How many changes, the newest last.",
)
@output.output_option
@click.pass_obj
def history(call: Call, count: int, output_kind: str) -> None:
    """Show the newest changes of the configuration: serial number, time, who, why, and what."""
    with call.client() as client:
        entries = client.config_history(count)
    if output_kind == "json":
        output.show_json(entries)
        return
    for entry in reversed(entries):
        why = f": {entry.why}" if entry.why else ""
        line = f"{entry.serial}  {output.absolute(entry.time)}  {entry.who or '?'}{why}"
        output.echo(output.harmless(line))
        for line in _lines(entry.changes):
            output.echo(f"    {line}")


@config.command(short_help="Show what has changed since a serial number.")
@click.argument("since", type=choices.WholeRange(0))
@click.argument("until", type=choices.WholeRange(0), required=False)
@click.pass_obj
def diff(call: Call, since: int, until: int | None) -> None:
    """Show what differs between the configuration of serial number SINCE and UNTIL, or now.

    The serial numbers are those of `ganger config history`.
    """
    with call.client() as client:
        _check_serials(client.count_objects().serial_no, since, until)
        entries = _between(client, since, until)
    first: dict[str, str | None] = {}
    last: dict[str, str | None] = {}
    for entry in entries:
        for path, before, after in entry.changes:
            first.setdefault(path, before)
            last[path] = after
    changed = [
        (path, first[path], last[path]) for path in sorted(last) if first[path] != last[path]
    ]
    for line in _lines(changed):
        output.echo(line)


def _check_serials(newest: int, since: int, until: int | None) -> None:
    """Raise `BadRequestError` if a serial number is to come, or they are in the wrong order."""
    from ..storage import errors  # noqa: PLC0415

    for serial in (since, since if until is None else until):
        if serial > newest:
            text = f"serial number {serial}: the newest change has serial number {newest}"
            raise errors.BadRequestError(text)
    if until is not None and until < since:
        text = f"UNTIL ({until}) is before SINCE ({since}): give the smaller serial number first"
        raise click.UsageError(text)


def _between(client: Client, since: int, until: int | None) -> list[HistoryLine]:
    """The changes after the one of serial number ``since``, oldest first."""
    found: list[HistoryLine] = []
    before = None if until is None else until + 1
    while entries := client.config_history(1_000, before=before):
        found += [entry for entry in entries if entry.serial > since]
        if entries[-1].serial <= since:
            break
        before = entries[-1].serial
    return found[::-1]


def _lines(changes: Iterable[tuple[str, str | None, str | None]]) -> Iterable[str]:
    """A line for each change: what users wrote into names begins none of its own."""
    for name, before, after in changes:
        if name.rpartition(".")[2] in _STAMPS:
            continue
        path = output.harmless(name)
        if before is None:
            yield f"+ {path} = {after}"
        elif after is None:
            yield f"- {path} = {before}"
        else:
            yield f"~ {path}: {before} -> {after}"


def _parsed(path: str) -> tuple[str, str | None, list[str]]:
    """Kind, name of the object (None: all), fields."""
    kind, *rest = path.strip("/").split("/")
    if not kind:
        text = f"{shown(path)} is no path: give a kind of objects, such as cluster or nodes"
        raise click.UsageError(text)
    if kind == _CLUSTER:
        return kind, "", rest
    return kind, rest[0] if rest else None, rest[1:]


def _object(client: Client, kind: str, name: str) -> dict[str, Any]:
    found = client.objects(kind) if kind == _CLUSTER else client.objects(kind, name)
    return found[0]


def _value(found: Any, fields: list[str], path: str) -> Any:  # noqa: ANN401 - decoded JSON
    from ..storage import errors  # noqa: PLC0415

    for field in fields:
        if not isinstance(found, dict) or field not in found:
            raise errors.UnknownObjectError(f"{path}: there is no {field}")
        found = found[field]
    return found


def json_value(text: str) -> object:
    """The JSON in ``text``; anything else is a text itself. `UsageError` if it is too deep."""
    from ..storage import errors  # noqa: PLC0415

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    except RecursionError as error:
        raise errors.UsageError(f"{shortened(text)}: nested deeper than can be read") from error
