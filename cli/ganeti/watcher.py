"""``ganger cluster watcher``: Ganeti's watcher does nothing for a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from .. import output, reading

if TYPE_CHECKING:
    from ..call import Call


@click.group(short_help="Pause Ganeti's watcher.")
def watcher() -> None:
    """Let Ganeti's watcher do nothing for a time, for maintenance.

    The watcher looks into the file watcher.pause in the data directory.
    """


@watcher.command(short_help="Let the watcher do nothing for a time.")
@click.argument("span", metavar="TIME")
@click.pass_obj
def pause(call: Call, span: str) -> None:
    """Let the watcher do nothing for TIME: seconds, or a span such as 30m, 2h or 7d."""
    try:
        until = time.time() + reading.seconds(span)
    except ValueError as error:
        raise click.UsageError(f"TIME: {error}") from error
    with call.client() as client:
        client.pause_watcher(until)
    output.echo(_pause_text(until))


@watcher.command("continue", short_help="Let the watcher work again.")
@click.pass_obj
def go_on(call: Call) -> None:
    """End the pause of the watcher now."""
    with call.client() as client:
        client.pause_watcher(None)
    output.echo("The watcher is no longer paused.")


@watcher.command("info", short_help="Show whether the watcher is paused.")
@click.pass_obj
def watcher_info(call: Call) -> None:
    """Show whether the watcher is paused, and until when."""
    with call.client() as client:
        [found] = client.query("cluster", ["watcher_pause"]).items
    output.echo(_pause_text(found["watcher_pause"]))


def _pause_text(until: float | None) -> str:
    if until is None:
        return "The watcher is not paused."
    return f"The watcher is paused until {output.absolute(until)}."
