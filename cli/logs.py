"""``ganger job logs``, and how the output of a job is printed.

A pipe or a file gets the job's bytes. A terminal gets control characters shown, not sent: they
could set its title, fake its answers or overwrite its text.
"""

from __future__ import annotations

import codecs
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ..storage import errors, wording
from ..storage.jobs.job_views import LogLine
from ..storage.jobs.outcomes import Outcome
from . import choices, following, output

if TYPE_CHECKING:
    from ..storage.jobs.job_views import JobInfo, OutputChunk
    from ..transport.client.client import Client
    from .call import Call

_ROOM = "to make room on a full disk"

_KEPT = "\n\t\r"
"""Control characters that a terminal gets: line feed, tab, carriage return."""


@click.command(short_help="Show the whole output of a job.")
@click.argument("job_id", metavar="ID", type=choices.JobId())
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "--tail", type=choices.WholeRange(min=0), metavar="N", help="Begin with the last N lines."
)
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), help="Only this output.")
@click.option(
    "--op", type=choices.WholeRange(min=0), metavar="N", help="Only of this opcode, counted from 0."
)
@click.pass_obj
def logs(
    call: Call, *, job_id: int, follow: bool, tail: int | None, stream: str | None, op: int | None
) -> int:
    """Show all output of a job, on standard output and standard error.

    What its operations have logged (messages, tracebacks) goes to standard error, in its place;
    --stream leaves that out. With --follow also what is still to come, even of a job that has not
    begun. Interrupting (Ctrl-C) stops following; the job goes on. Bytes come as they were written;
    on a terminal control characters are shown instead of sent.
    """
    printer, is_silent = Printer(), stream is None and op is None and tail != 0
    with call.client() as client:
        if op is not None:
            _check_place(op, client.job(job_id))
        try:
            parts = client.logs(
                job_id, follow=follow, tail=tail, stream=stream, op=op, messages=stream is None
            )
            for part in parts:
                is_silent = False
                if isinstance(part, LogLine):
                    output.echo(part.text, err=True)
                else:
                    printer.show(part)
        except KeyboardInterrupt:
            return following.interrupted([job_id] if _goes_on(client, job_id) else [], "logs -f")
        finally:
            printer.finish()
        if is_silent:
            _tell_how_it_ended(client, job_id)
    return 0


def _tell_how_it_ended(client: Client, job_id: int) -> None:
    # Somebody who reads the log of a job that failed wants to know why.
    job = client.job(job_id)
    if following.outcome(job) not in {None, Outcome.SUCCESS}:
        output.echo(f"ganger: job {job_id} has no output; it {following.ending(job)}", err=True)


def _check_place(op: int, job: JobInfo) -> None:
    count = len(job.ops or ())
    if op >= count:
        has = wording.counted(count, "opcode")
        raise errors.UsageError(f"--op: job {job.id} has {has}, counted from 0, and none at {op}")


def _goes_on(client: Client, job_id: int) -> bool:
    with suppress(errors.GangerError):
        [job] = client.jobs([job_id])
        return not job.is_final
    return False


class Printer:
    """Passes output of one job on to standard output and standard error."""

    def __init__(self) -> None:
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def show(self, chunk: OutputChunk) -> None:
        """Print one piece, or how much output is missing in its place."""
        if chunk.gap:
            output.echo(f"ganger: job {chunk.job_id}: {_missing(chunk)}", err=True)
            return
        stream = sys.stderr if chunk.stream == "stderr" else sys.stdout
        if stream.isatty():
            self._show_harmless(chunk.stream, chunk.data)
            return
        # Text that was printed earlier comes first.
        stream.flush()
        stream.buffer.write(chunk.data)
        stream.buffer.flush()

    def finish(self) -> None:
        """The output has ended: print a character that was cut off."""
        for name, decoder in self._decoders.items():
            rest = decoder.decode(b"", final=True)
            if rest:
                output.echo(rest, err=name == "stderr", nl=False, kept=_KEPT)

    def _show_harmless(self, name: str, data: bytes) -> None:
        if name not in self._decoders:
            self._decoders[name] = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        text = self._decoders[name].decode(data)
        output.echo(text, err=name == "stderr", nl=False, kept=_KEPT)


def _missing(chunk: OutputChunk) -> str:
    match chunk.gap:
        case "limit" if chunk.missing:
            return f"{chunk.missing} bytes of output were dropped above its limit"
        case "limit":
            return "the limit of its output was reached, what follows was dropped"
        case "removed":
            return f"its output ({wording.size(chunk.missing)} as stored) was removed, {_ROOM}"
        case "disk":
            return f"{chunk.missing} bytes of output are missing here: the disk refused them"
    return f"{chunk.missing} stored bytes of output are damaged and left out"
