"""``ganger lock``: which jobs hold each lock, and which wait for it and for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from ..storage.locks.locks import typed
from . import lock_graph, named_locks, output
from .output import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..transport.messages import LockRow
    from .call import Call

_COLUMNS = {
    "name": Column("name", lambda row: row.name),
    "mode": Column("mode", lambda row: row.mode or "-"),
    "owner": Column("owner", lambda row: ",".join(row.owners) or "-"),
    "pending": Column("pending", lambda row: _by_mode(row.pending) or "-"),
    "wanted": Column("wanted", lambda row: _by_mode(row.wanted) or "-"),
}


@click.group()
def lock() -> None:
    """See which jobs hold which locks."""


@lock.command("list", short_help="List every lock that is held or wanted.")
@output.style_options
@click.pass_obj
def list_locks(call: Call, style: output.Style) -> None:
    """List every lock that is held or wanted: its mode, its owners and the jobs that wait.

    Under "pending" stand jobs that wait for the lock with a process, in line; under "wanted" the
    first jobs without one that will take it when they start.
    """
    names = output.chosen_fields(style, tuple(_COLUMNS), tuple(_COLUMNS))
    with call.client() as client:
        rows = client.locks()
        if style.output == "json":
            output.show_json([{name: _plain(row, name) for name in names} for row in rows])
            return
        # A lock set that is held only through its members says nothing here.
        told = [row for row in rows if row.owners or row.pending or row.wanted]
        in_names = named_locks.words(client) if told else str
    told = [msgspec.structs.replace(row, name=in_names(typed(row.name))) for row in told]
    output.show_rows(told, [_COLUMNS[name] for name in names], style, noun="locks")


@lock.command(short_help="Show who waits for whom.")
@click.option("--dot", is_flag=True, help="Print the graph for Graphviz: `... --dot | dot -Tsvg`.")
@click.pass_obj
def graph(call: Call, *, dot: bool) -> None:
    """Show who waits for whom: because of locks, or because of dependencies between jobs.

    Below each owner stand those that wait for it, and what they wait for. An owner that waits for
    several stands below each of them.
    """
    with call.client() as client:
        found = lock_graph.arrows(client.lock_waits(), client.locks())
        in_names = named_locks.words(client) if found else str
    found = [one._replace(why=in_names(one.why)) for one in found]
    if not found and not dot:
        output.echo("No job waits for a lock or for another job.")
        return
    for line in lock_graph.dot(found) if dot else lock_graph.tree(found):
        output.echo(line)


@lock.command(short_help="Print each change of locks, until Ctrl-C.")
@output.output_option
@click.pass_obj
def watch(call: Call, output_kind: str) -> None:
    """Print every lock that is held or wanted, then each change, until Ctrl-C.

    Changes that follow each other at once may be printed as one. With `--output json` each line
    is a JSON object; the `mode` of a lock that is free again is null, without owners.
    """
    before: dict[str, LockRow] = {}
    revision = 0
    with call.client() as client:
        while True:
            found = client.watch_locks(revision)
            revision = found.revision
            # A lock set that is held only through its members is no news.
            rows = {row.name: row for row in found.rows if row.owners or row.pending}
            lines = [*_changes(before, rows, is_json=output_kind == "json")]
            in_names = named_locks.words(client) if lines and output_kind != "json" else str
            for line in lines:
                output.echo(in_names(line))
            before = rows


def _changes(
    before: dict[str, LockRow], after: dict[str, LockRow], *, is_json: bool
) -> Iterator[str]:
    """A line for each lock that is not as before."""
    for name in (*after, *(name for name in before if name not in after)):
        row = after.get(name)
        if row == before.get(name):
            continue
        shown_name = typed(name)
        if is_json:
            from ..transport.messages import LockRow  # noqa: PLC0415 - for this option alone

            shown = row or LockRow(name=name, mode=None, owners=[], pending=[])
            shown = msgspec.structs.replace(shown, name=shown_name)
            # The lock manager does not know who wants a lock without a process.
            told = {key: getattr(shown, key) for key in ("name", "mode", "owners", "pending")}
            yield msgspec.json.encode(told).decode()
        elif row is None:
            yield f"{shown_name} is free"
        else:
            parts = [f"held {row.mode} by {', '.join(row.owners)}"] if row.owners else []
            parts += [f"wanted {mode} by {', '.join(owners)}" for mode, owners in row.pending]
            yield f"{shown_name} is {', '.join(parts)}"


def _plain(row: LockRow, name: str) -> object:
    if name == "name":
        return typed(row.name)
    return row.owners if name == "owner" else getattr(row, name)


def _by_mode(owners: list[tuple[str, list[str]]]) -> str:
    return ",".join(f"{mode}:{'/'.join(some)}" for mode, some in owners)
