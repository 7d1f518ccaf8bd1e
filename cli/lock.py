"""``ganger lock``: which jobs hold each lock, and which wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from . import output
from .output import Column

if TYPE_CHECKING:
    from ..transport.messages import LockRow
    from .call import Call

_COLUMNS = {
    "name": Column("name", lambda row: row.name),
    "mode": Column("mode", lambda row: row.mode or "-"),
    "owner": Column("owner", lambda row: ",".join(row.owners) or "-"),
    "pending": Column("pending", lambda row: _pending(row) or "-"),
}


@click.group()
def lock() -> None:
    """See which jobs hold which locks."""


@lock.command("list", short_help="List every lock that is held or wanted.")
@output.style_options
@click.pass_obj
def list_locks(call: Call, style: output.Style) -> None:
    """List every lock that is held or wanted: its mode, its owners and the jobs that wait."""
    names = output.chosen_fields(style, tuple(_COLUMNS), tuple(_COLUMNS))
    with call.client() as client:
        rows = client.locks()
    if style.output == "json":
        output.show_json([{name: _plain(row, name) for name in names} for row in rows])
        return
    output.show_rows(rows, [_COLUMNS[name] for name in names], style)


def _plain(row: LockRow, name: str) -> object:
    return row.owners if name == "owner" else getattr(row, name)


def _pending(row: LockRow) -> str:
    return ",".join(f"{mode}:{'/'.join(owners)}" for mode, owners in row.pending)
