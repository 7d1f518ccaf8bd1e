"""``ganger import-ganeti``: makes a new data directory of a state directory of Ganeti."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import click

from ...storage import errors, wording
from ...storage.disk import ownership
from ...storage.ganeti.importing import building, parts, source
from ...storage.ganeti.importing.import_decision import Outcome
from ...storage.jobs import jobs
from .. import output
from ..progress import Bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...storage.disk.paths import Places
    from ...storage.ganeti.importing.queues import Ended, FoundQueue
    from ...storage.ganeti.importing.source import Source
    from ..call import Call

_BAR_JOBS_MIN = 1_000
"""Fewer job files are read faster than a bar appears."""

_SHOWN_MAX = 20
_WORDS = {
    Outcome.FINAL: ("has ended", "have ended"),
    Outcome.PENDING: ("will run", "will run"),
    Outcome.ENDED: ("ends in an error", "end in an error"),
    Outcome.CANCELED: ("is canceled", "are canceled"),
}
"""What becomes of one job, and of several."""


@click.command("import-ganeti")
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, readable=False))
@click.option("--dry-run", is_flag=True, help="Check and tell everything; write nothing.")
@click.option(
    "--skip-damaged", is_flag=True, help="Leave out what cannot be read, instead of refusing."
)
@click.option(
    "--stopped",
    is_flag=True,
    help="LuxiD has ended everywhere, although its file queue/lock is left over in DIR.",
)
@output.output_option
@click.pass_obj
def import_ganeti(
    call: Call,
    *,
    directory: str,
    dry_run: bool,
    skip_damaged: bool,
    stopped: bool,
    output_kind: str,
) -> None:
    """Take over the queue, configuration and remote users of Ganeti from DIR.

    DIR is Ganeti's state directory, such as /var/lib/ganeti, or a copy of it. Nothing in it is
    changed. The new data directory is that of --data; it must not exist, or be empty.

    Ganeti must have stopped, its jobs too. Pending jobs run when the daemon starts. A job that
    Ganeti had given to a process may have begun: it ends in an error, and `ganger job retry`
    repeats it. A job that this system cannot run ends in an error, too.

    \b
    Exit codes:
      0    taken over; with --dry-run: it could be
      1    DIR cannot be taken over, or the data directory is in use
      70   a process of Ganeti still works in DIR, or another import does
      74   the disk refuses
    """  # noqa: D301 - the mark that keeps lines apart
    places = call.places
    path = source.find(directory)
    building.require_free(places, path)
    with Bar("reading jobs", _BAR_JOBS_MIN) as bar:
        found = source.survey(path, bar.show)
    document = _document(found, places)
    if output_kind != "json":
        for line in (*_report(found), *_lists(found)):
            _echo(line)
    if found.damage and not skip_damaged:
        if output_kind == "json":
            output.show_json({**document, "taken_over": False})
        what = wording.counted(len(found.damage), "thing")
        text = f"{path}: {what} cannot be taken over; --skip-damaged leaves out what is damaged"
        raise errors.DataDirectoryError(text)
    if not stopped:
        source.require_stopped(found)
    building.require_room(places, found)
    if not dry_run:
        with Bar("writing jobs", _BAR_JOBS_MIN) as bar:
            building.build(found, places, bar.show, jobs.timestamp(time.time()))
    _show_end(places, document if output_kind == "json" else None, dry_run=dry_run)


def _show_end(places: Places, document: dict[str, Any] | None, *, dry_run: bool) -> None:
    """Say what was done; ``document``: as JSON, with this."""
    if document is not None:
        output.show_json({**document, "taken_over": not dry_run})
    elif dry_run:
        output.echo(f"Nothing was written (--dry-run); {places.data} is free")
    else:
        output.echo(f"Taken over into {places.data}")
        output.echo(f"Start the daemon: {ownership.command(places, 'up')}")


def _report(found: Source) -> Iterator[str]:
    queue = found.queue
    yield f"{found.path}: cluster {found.config.cluster}"
    yield f"  jobs           {_jobs(queue)}"
    yield f"  archive        {wording.counted(_archived(queue), 'job')}"
    yield f"  last id        {queue.last_id}"
    if queue.is_drained:
        yield "  queue          drained: takes no jobs until `ganger queue undrain`"
    yield f"  configuration  {parts.described(found.config.objects)}"
    yield f"  filter rules   {found.config.rules}"
    yield f"  remote users   {found.users.count if found.users else 'no users file'}"
    if (until := _pause(found)) is not None and until > time.time():
        yield f"  watcher        paused until {output.absolute(until)}"


def _jobs(queue: FoundQueue) -> str:
    counts = {outcome: queue.count(outcome) for outcome in Outcome}
    listed = [
        f"{count} {_WORDS[outcome][count != 1]}" for outcome, count in counts.items() if count
    ]
    return ": ".join([str(sum(counts.values())), *([", ".join(listed)] if listed else [])])


def _archived(queue: FoundQueue) -> int:
    return sum(queue.count(outcome, is_archived=True) for outcome in Outcome)


def _pause(found: Source) -> float | None:
    return None if found.pause is None else parts.pause(found.pause)


def _lists(found: Source) -> Iterator[str]:
    for job in found.queue.ended[:_SHOWN_MAX]:
        yield f"will not run: {_ended(job)}"
    yield from _more(len(found.queue.ended), "will not run: {} more jobs; -o json names all")
    for note in found.notes[:_SHOWN_MAX]:
        yield f"note: {note}"
    yield from _more(len(found.notes), "note: {} more notes; -o json has all")
    if found.others:
        yield f"note: stays there: {', '.join(found.others)}"
    for damage in found.damage[:_SHOWN_MAX]:
        yield f"damaged: {damage.path}: {damage.text}"
    yield from _more(len(found.damage), "damaged: {} more; -o json names all")


def _ended(job: Ended) -> str:
    how = "canceled" if job.outcome is Outcome.CANCELED else "error"
    return f"job {job.id} {job.summary} ({job.status} -> {how}): {job.why}"


def _more(count: int, text: str) -> Iterator[str]:
    if count > _SHOWN_MAX:
        yield text.format(count - _SHOWN_MAX)


def _echo(line: str) -> None:
    """Print a line; on a terminal broken between words, in a pipe as one line."""
    if not sys.stdout.isatty():
        output.echo(line)
        return
    width = shutil.get_terminal_size().columns - 1
    for part in textwrap.wrap(
        line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    ):
        output.echo(part)


def _document(found: Source, places: Places) -> dict[str, Any]:
    queue = found.queue
    return {
        "source": found.path,
        "data": str(places.data),
        "cluster": found.config.cluster,
        "objects": found.config.objects,
        "filter_rules": found.config.rules,
        "remote_users": None if found.users is None else found.users.count,
        "watcher_pause": _pause(found),
        "jobs": {outcome.value: queue.count(outcome) for outcome in Outcome},
        "archived": _archived(queue),
        "last_id": queue.last_id,
        "drained": queue.is_drained,
        "will_not_run": queue.ended,
        "notes": found.notes,
        "stays": found.others,
        "damaged": found.damage,
    }
