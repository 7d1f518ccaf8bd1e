"""How results are shown: tables for people, plain columns for pipes, JSON for programs.

On a terminal a table has colours and times relative to now; in a pipe it is stable: one row
a line, absolute times in UTC, no colour.
"""

from __future__ import annotations

import errno
import io
import operator
import re
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from ..storage import wording
from ..storage.jobs.jobs import JobStatus
from ..storage.jobs.outcomes import Outcome
from ..storage.plain_values import encoded
from . import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console
    from rich.text import Text

COLOURS = {
    "queued": "cyan",
    "waiting": "yellow",
    "canceling": "magenta",
    "running": "bold blue",
    "canceled": "magenta",
    "success": "green",
    "error": "bold red",
    "failed": "bold red",
    "killed": "bold red",
    "lost": "bold red",
    "rejected": "magenta",
    "skipped": "cyan",
    "timed-out": "bold red",
}
"""Of statuses and outcomes."""


_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, those that turn the direction of writing, and what no encoding has."""

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


missing: list[TextIO] = []
"""Stand-ins for standard streams that this process was started without."""


class _ClosedOutput(io.RawIOBase):
    """Refuses what is written to it. Descriptor 1 is /dev/null, for the sake of children."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, _data: object) -> int:
        raise OSError(errno.EBADF, "it is closed")


def closed_output() -> TextIO:
    """Stands for a standard output that is closed: `OSError` when something is written to it."""
    return io.TextIOWrapper(io.BufferedWriter(_ClosedOutput()), encoding="utf-8")


def is_missing(stream: TextIO) -> bool:
    """Whether this process was started without this standard stream: it stands for nothing."""
    return any(one is stream for one in missing)


def write_whole() -> None:
    """Give standard streams the buffer that they lack where PYTHONUNBUFFERED is set.

    Without it, nobody writes the rest that a system call has left over: the reader leaves in its
    middle, or the disk is full, and no error tells.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        is_ours = stream is getattr(sys, f"__{name}__")
        if is_ours and isinstance(stream.buffer, io.FileIO):
            form = {"encoding": stream.encoding, "errors": stream.errors}
            whole = io.BufferedWriter(stream.detach())
            setattr(sys, name, io.TextIOWrapper(whole, line_buffering=True, **form))


class Style(msgspec.Struct, frozen=True):
    """How the user wants a listing."""

    output: str = "table"
    headers: bool = True
    separator: str | None = None
    fields: tuple[str, ...] = ()


def style_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of everything that lists or shows; they arrive as ``style``."""
    import functools  # noqa: PLC0415

    @output_option
    @click.option("--no-headers", is_flag=True, help="Leave out the headings.")
    @click.option("--separator", metavar="TEXT", help="Put this between columns; no padding.")
    @click.option(
        "--fields",
        metavar="NAMES",
        help="Show these columns, separated by commas; +NAME adds one to the usual ones.",
    )
    @functools.wraps(function)
    def wrapped(
        *args: Any,  # noqa: ANN401
        output_kind: str,
        no_headers: bool,
        separator: str | None,
        fields: str | None,
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        names = tuple(name.strip() for name in (fields or "").split(",") if name.strip())
        if fields is not None and not names:
            raise click.UsageError("--fields: is empty")
        style = Style(output_kind, not no_headers, separator, names)
        return function(*args, style=style, **options)

    return wrapped


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option that chooses between a table and JSON."""
    option = click.option(
        "-o",
        "--output",
        "output_kind",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="A table for people, or JSON for programs.",
    )
    return option(function)


class Styled(msgspec.Struct, frozen=True):
    """Text that has a colour on a terminal."""

    text: str
    fg: str
    bold: bool = False


def echo(*parts: object, err: bool = False, nl: bool = True, kept: str = "\n\t") -> None:
    """Print text that may come from a job or a user: control characters are shown, not sent.

    All commands print text by this. ``kept`` are control characters that are sent.
    """
    shown = [
        click.style(part.text, fg=part.fg, bold=part.bold)
        if isinstance(part, Styled)
        else harmless(str(part), kept)
        for part in parts
    ]
    if err and _screens:
        _screens[-1].print("".join(shown), markup=False, highlight=False)
        return
    # Into a pipe or a file click leaves out the colours.
    click.echo("".join(shown), err=err, nl=nl)


@contextmanager
def above(console: Console) -> Iterator[None]:
    """Meanwhile print text for standard error by ``console``, above its progress bars."""
    _screens.append(console)
    try:
        yield
    finally:
        _screens.remove(console)


_screens: list[Console] = []


def harmless(text: str, kept: str = "") -> str:
    """``text`` with its control characters shown instead of sent, but for those in ``kept``.

    Also those that change the direction of writing, or that no encoding has. Text of jobs and
    users must not set a terminal's title, fake its answers or overwrite its text.

    >>> harmless(f"a{chr(27)}]0;title") == "a" + ascii(chr(27))[1:-1] + "]0;title"
    True
    """
    if text.isprintable():
        return text
    return _HARMFUL.sub(lambda found: found[0] if found[0] in kept else _escaped(found[0]), text)


def _escaped(sign: str) -> str:
    return ascii(sign)[1:-1]


def show_json(value: object) -> None:
    """Print ``value`` as JSON, readable and for programs."""
    text = msgspec.json.format(encoded(value), indent=2).decode()
    # JSON's own escapes: programs read back the original text.
    click.echo(
        _HARMFUL.sub(lambda found: found[0] if found[0] == "\n" else _in_json(found[0]), text)
    )


def _in_json(sign: str) -> str:
    return f"\\u{ord(sign):04x}"


class Column(msgspec.Struct, frozen=True):
    """One column: its heading, and how a row's value is shown (plain, and on a terminal)."""

    heading: str
    plain: Any
    pretty: Any = None
    width_least: int = 20
    """A narrow terminal cuts wider values, but not below this width.

    Columns that still do not fit stand on further lines of each row.
    """


def column(name: str, kind: object) -> Column:
    """The column of an attribute that has this type."""
    find = operator.attrgetter(name)
    columns: dict[object, Column] = {
        JobStatus: Column(name, find, lambda row: status_text(find(row))),
        Outcome | None: Column(
            name, lambda row: find(row) or "-", lambda row: status_text(find(row) or "-")
        ),
        int: Column(name, find),
        bool: Column(name, lambda row: "yes" if find(row) else "no"),
        float | None: Column(
            name, lambda row: absolute(find(row)), lambda row: relative(find(row))
        ),
    }
    return columns.get(kind) or Column(name, lambda row: find(row) or "-")


def chosen_fields(style: Style, usual: Sequence[str], known: Sequence[str]) -> list[str]:
    """The columns to show; `click.UsageError` naming one that does not exist."""
    added = [name[1:] for name in style.fields if name.startswith("+")]
    named = [name for name in style.fields if not name.startswith("+")]
    names = [*(named or usual), *added]
    for name in names:
        if name not in known:
            meant = wording.likeness(name, known)
            text = f"--fields: there is no field {name!r}{meant}; known are {', '.join(known)}"
            raise click.UsageError(text)
    return names


def show_rows(
    rows: Sequence[Any], columns: Sequence[Column], style: Style, *, noun: str = "rows"
) -> None:
    """Print a listing as the user wants it.

    Without rows standard error says that there are no such things, whose name is ``noun``; not if a
    program reads on, as it says by leaving out the headings.
    """
    if not rows and style.headers:
        echo(f"ganger: no {noun}", err=True)
    if sys.stdout.isatty() and style.separator is None:
        _show_table(rows, columns, style)
        return
    # One row a line, whatever a user has put into a name or a reason.
    cells = [[harmless(str(column.plain(row))) for column in columns] for row in rows]
    if style.headers:
        cells.insert(0, [column.heading for column in columns])
    if style.separator is None:
        found = layout.padded(cells)
    else:
        found = [style.separator.join(row).rstrip() for row in cells]
    for line in found:
        click.echo(line)


def _show_table(rows: Sequence[Any], columns: Sequence[Column], style: Style) -> None:
    from rich.console import Console  # noqa: PLC0415 - only for people
    from rich.text import Text  # noqa: PLC0415

    cells = [[_cell((column.pretty or column.plain)(row)) for column in columns] for row in rows]
    if rows and not style.fields:
        told = [place for place in range(len(columns)) if any(map(_tells, _at(cells, place)))]
        columns = [columns[place] for place in told]
        cells = [[row[place] for place in told] for row in cells]
    headings = [_cell(column.heading.upper()) for column in columns]
    if style.headers:
        for heading in headings:
            heading.stylize("bold")
        cells.insert(0, headings)
    if not cells:
        return
    console = Console()
    wanted = [max(cell.cell_len for cell in found) for found in zip(*cells, strict=True)]
    least = [column.width_least for column in columns]
    lines = layout.lines(wanted, least, console.width)
    shown = [
        _joined(row, line)
        for row in cells
        for line in lines
        if style.fields or not line.indent or any(_tells(row[place]) for place in line.places)
    ]
    # A shortened UUID is useless: a long one runs over the edge.
    console.print(Text("\n").join(shown), soft_wrap=True)


def _at(cells: Sequence[Sequence[Text]], place: int) -> Iterator[Text]:
    return (row[place] for row in cells)


def _tells(cell: Text) -> bool:
    """Whether a cell says something: a terminal shows no line, and no usual column, of others."""
    return cell.plain not in ("-", "0")


def _joined(row: Sequence[Text], line: layout.Line) -> Text:
    """The cells of a row that stand on this line, each as wide as its column."""
    from rich.text import Text  # noqa: PLC0415

    shown = Text(" " * line.indent)
    for place, width in zip(line.places, line.widths, strict=True):
        cell = row[place].copy()
        cell.truncate(width, overflow="ellipsis")
        if place != line.places[-1]:
            cell.pad_right(width - cell.cell_len + layout.GAP)
        shown.append_text(cell)
    return shown


def _cell(value: object) -> Text:
    """A value as rich shows it: brackets are no markup (`node/[lockset]`), a number is a text."""
    from rich.text import Text  # noqa: PLC0415

    return value if isinstance(value, Text) else Text(harmless(str(value)))


def status_text(status: str) -> Any:  # noqa: ANN401 - rich's text, imported when needed
    """A status in its colour."""
    from rich.text import Text  # noqa: PLC0415

    return Text(str(status), style=COLOURS.get(str(status), ""))


def absolute(moment: float | None) -> str:
    """A time for programs, UTC; ``-`` if there is none.

    A stored time outside the calendar (milliseconds, probably) is shown in seconds.
    """
    if moment is None:
        return "-"
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{moment:.0f}"


def relative(moment: float | None) -> str:
    """A time for people, seen from now: ``3m 5s ago``, ``in 2h 10m``; ``-`` if there is none."""
    if moment is None:
        return "-"
    ahead = moment - time.time()
    return f"in {span(ahead)}" if ahead > 1 else f"{span(max(0.0, -ahead))} ago"


def span(seconds: float | None) -> str:
    """A duration for people: ``0.4s``, ``12s``, ``3m 5s``, ``2h 10m``, ``4d 3h``."""
    if seconds is None:
        return "-"
    if seconds < 10:  # noqa: PLR2004 - a digit more for what is short
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR}h"
