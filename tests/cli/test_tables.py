"""How times are printed, and how every table looks on a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from rich.console import Console
from tests.cli import stand_in

from ganger.cli import layout, output
from ganger.cli.main import ganger
from ganger.cli.output import Column
from ganger.storage.access import keys
from ganger.storage.disk import paths
from ganger.storage.jobs.job_views import JobInfo
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.client.etas import Etas, JobEta
from ganger.transport.messages import FilterRow, LockRow
from ganger.transport.zmq.sockets import new_key_pair

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (None, "-"),
        (0.0, "1970-01-01T00:00:00Z"),
        (253_402_300_799.0, "9999-12-31T23:59:59Z"),
    ],
)
def test_a_time_is_printed_in_utc(moment: float | None, expected: str) -> None:
    assert output.absolute(moment) == expected


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (253_402_300_800.0, "253402300800"),
        (1_800_000_000_000_000.0, "1800000000000000"),
        (-1e12, "-1000000000000"),
        (2.0**63, "9223372036854775808"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_a_time_that_no_calendar_has_is_printed_in_seconds(moment: float, expected: str) -> None:
    assert output.absolute(moment) == expected


# On a terminal of 80 columns.

UUID = "00000000-0000-4000-8000-000000000001"
LONG = "x" * 100
COLOUR = re.compile("\x1b\\[[0-9;]*m")


class FullDaemon:
    """Stands for the client of a daemon that has one of everything."""

    rules = (
        FilterRow(
            uuid=UUID,
            watermark=17,
            priority=2,
            predicates=[["opcode", ["=", "OP_ID", LONG]]],
            action=["RATE_LIMIT", 3],
            reason_trail=[["gnt:user", "[bold]rack 7[/]", 5]],
            valid_from=1.0,
            valid_until=1_800_000_000.0,
        ),
    )

    def filters(self, _uuids: object = None) -> Sequence[FilterRow]:
        return self.rules

    def jobs(self, *_: object, **_options: object) -> list[JobInfo]:
        running = JobInfo(
            id=7,
            status=JobStatus.RUNNING,
            summary=LONG,
            priority=-3,
            received=1.0,
            started=2.0,
            process_id=99,
            reason="why",
        )
        waiting = JobInfo(id=8, status=JobStatus.QUEUED, summary="EXEC(true)", priority=0)
        return [running, waiting]

    def eta(self) -> Etas:
        return Etas({7: JobEta(id=7, end=1_800_000_000.0, run_seconds=3.0, count=2)})

    def objects(self, _: str) -> list[dict[str, str]]:
        return []

    def locks(self) -> list[LockRow]:
        pending = [("exclusive", ["8", "9"])]
        return [
            LockRow(
                name="node/[lockset]",
                mode="shared",
                owners=["7"],
                pending=pending,
                wanted=[("shared", ["10"])],
            ),
            LockRow(name="node/[n1]", mode="shared", owners=["7"], pending=[]),
        ]


class ShowsTable(Protocol):
    """Runs a command; the lines that it shows on a terminal, without colours."""

    def __call__(self, *words: str) -> list[str]: ...


@pytest.fixture(name="shown")
def shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ShowsTable:
    """Run a command; the lines that it shows on a terminal of 80 columns, without colours."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    keys.authorise(paths.places(tmp_path).keys, new_key_pair().public, "me")

    def run(*words: str) -> list[str]:
        terminal = stand_in.Terminal()
        with monkeypatch.context() as patch:
            stand_in.use(patch, FullDaemon())
            patch.setattr(sys, "stdout", terminal)
            ganger.main(["--data", str(tmp_path), *words], "ganger", standalone_mode=False)
        text = terminal.getvalue()
        assert COLOUR.search(text), "not shown as on a terminal"
        return [line.rstrip() for line in COLOUR.sub("", text).splitlines()]

    return run


FILTER = "rule,uuid,watermark,priority,matches,predicates,action,reason,state,from,until,name"
JOB = (
    "id,status,state,summary,priority,received,started,ended,duration,process_id,archived,reason,"
    "outcome,reason_ended,cause,name,plan,user,retry_of,eta"
)
TABLES = [
    ("filter", FILTER),
    ("job", JOB),
    ("lock", "name,mode,owner,pending,wanted"),
    ("key", "name,public_key"),
]


@pytest.mark.parametrize(("noun", "fields"), TABLES)
def test_a_terminal_is_shown_every_column_of_every_table(
    shown: ShowsTable, noun: str, fields: str
) -> None:
    for name in fields.split(","):
        heading, *lines = shown(noun, "list", "--fields", name)
        assert heading == name.upper()
        assert lines
        assert all(lines)
        assert not any(line in heading for line in lines)
    everything = shown(noun, "list", "--fields", fields)
    # What has no room on the line of a row stands on further ones, moved in.
    (row,) = [at for at, line in enumerate(everything) if at and line[:1] != " "][:1]
    assert " ".join(everything[:row]).split() == fields.upper().split(",")
    assert len(everything) % row == 0


@pytest.mark.parametrize(("noun", "fields"), TABLES)
def test_every_table_has_the_columns_that_are_tried_here(
    shown: ShowsTable, noun: str, fields: str
) -> None:
    with pytest.raises(Exception, match=f"known are {', '.join(fields.split(','))}$"):
        shown(noun, "list", "--fields", "no such field")


@pytest.mark.parametrize("columns", ["60", "80", "200"])
@pytest.mark.parametrize(("noun", "fields"), TABLES)
def test_no_table_is_wider_than_the_terminal(
    shown: ShowsTable, noun: str, fields: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal would go on in the middle of a word, or of a number."""
    monkeypatch.setenv("COLUMNS", columns)
    # A key is useless if a digit is missing.
    room = max(int(columns), 4 + 64) if noun == "key" else int(columns)
    assert max(map(layout.cells, shown(noun, "list", "--fields", fields))) <= room
    assert max(map(layout.cells, shown(noun, "list"))) <= room


def test_a_long_summary_is_cut_and_nothing_else(shown: ShowsTable) -> None:
    _, first, second = shown("job", "list")
    assert re.fullmatch(r"7   running  x{20,50}\u2026  .* ago +\w+ \w+", first)
    assert second.split() == ["8", "queued", "EXEC(true)", "-", "-"]


def test_a_rule_is_shown_with_its_whole_uuid_however_narrow_the_terminal_is(
    shown: ShowsTable,
) -> None:
    lines = shown("filter", "list", "--fields", "watermark,predicates,uuid,reason")
    assert lines[0].split() == ["WATERMARK", "PREDICATES", "UUID"]
    cells = re.split("  +", "  ".join(lines[2:]).strip())
    assert cells[0] == "17"
    assert cells[1].startswith('[["opcode",["=","OP_')
    assert cells[2:] == [UUID, "[bold]rack 7[/]"]


def test_what_a_rule_matches_has_most_of_a_line_before_it_is_cut(shown: ShowsTable) -> None:
    lines = shown("filter", "list")
    assert lines[0].split() == ["RULE", "PRIORITY", "STATE", "ACTION", "UNTIL"]
    assert re.fullmatch(r"00000000  2         in force  RATE_LIMIT 3  in \w+ \w+", lines[2])
    assert re.fullmatch(r"    opcode = x{45,}\u2026  \[bold\]rack 7\[/\]", lines[3])


def test_brackets_of_a_name_are_shown(shown: ShowsTable) -> None:
    _, first, second = shown("lock", "list")
    # As users type it.
    assert first.split() == ["node/*", "shared", "7", "exclusive:8/9", "shared:10"]
    assert second.split() == ["node/[n1]", "shared", "7", "-", "-"]


def test_a_table_without_rows_is_its_headings(
    shown: ShowsTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FullDaemon, "rules", ())
    assert shown("filter", "list", "--fields", "uuid,state") == ["UUID  STATE"]


def test_headings_are_left_out_on_a_terminal_too(shown: ShowsTable) -> None:
    lines = shown("job", "list", "--no-headers", "--fields", "status,id")
    assert lines == ["running  7", "queued   8"]


HARMFUL = "a\x1b]0;title\x07b\r\x9b31m\u202e\x00\udc80c"
SHOWN = r"a\x1b]0;title\x07b\r\x9b31m\u202e\x00\udc80c"


def test_control_characters_are_shown_instead_of_sent(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.harmless(HARMFUL) == SHOWN
    output.echo("job ", output.Styled("fine", "green"), f": {HARMFUL}")
    output.echo("two\nlines\tä €", err=True)
    captured = capsys.readouterr()
    assert captured.out == f"job fine: {SHOWN}\n"
    assert captured.err == "two\nlines\tä €\n"


def test_lines_stand_above_what_moves_at_the_end_of_the_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = io.StringIO()
    with output.above(Console(file=screen, width=80)):
        output.echo("ganger: \x1b[2J", err=True)
        output.echo("out")
    output.echo("later", err=True)
    assert screen.getvalue() == "ganger: \\x1b[2J\n"
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("out\n", "later\n")


def test_tables_send_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column("name", lambda row: row)]
    output.show_rows([HARMFUL, "x\ny"], columns, output.Style(headers=False))
    assert capsys.readouterr().out == f"{SHOWN}\nx\\ny\n"
    assert str(output._cell(HARMFUL)) == SHOWN


def test_json_keeps_every_character_and_sends_none_that_harms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = HARMFUL.replace("\udc80", "")
    output.show_json({"text": text})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"text": text}
    assert output.harmless(printed, "\n") == printed


def test_commands_print_text_in_this_one_way() -> None:
    folder = Path(output.__file__).parent
    printing = {
        path.name
        for path in folder.glob("*.py")
        if re.search(r"click\.s?echo|\bprint\(|std(out|err)\.write", path.read_text())
    }
    # A completion script is a program of ours.
    assert printing == {"output.py", "completion.py"}


def test_a_line_break_in_a_cell_begins_no_row(
    shown: ShowsTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobInfo(id=7, status=JobStatus.QUEUED, summary="", priority=0, reason="a\nb\x1b]0;c")
    monkeypatch.setattr(FullDaemon, "jobs", lambda *_, **__: [job])
    assert shown("job", "list", "--fields", "id,reason")[1:] == ["7   a\\nb\\x1b]0;c"]


# In a pipe.


def test_the_cells_of_a_column_stand_below_each_other_however_long_they_are() -> None:
    rows = [["1", "short", "x"], ["22", LONG, "y"], ["3", "middling", "z"]]
    assert layout.padded(rows) == [
        f"1   {'short':<{len(LONG)}}  x",
        f"22  {LONG}  y",
        f"3   {'middling':<{len(LONG)}}  z",
    ]


@pytest.mark.parametrize(("words", "shown"), [((), "ganger: no jobs\n"), (("--no-headers",), "")])
def test_an_empty_listing_says_so_to_people(
    words: tuple[str, ...],
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(FullDaemon, "jobs", lambda *_, **__: [])
    stand_in.use(monkeypatch, FullDaemon())
    ganger.main(["job", "list", *words], "ganger", standalone_mode=False)
    printed = capsys.readouterr()
    assert printed.err == shown
    assert bool(printed.out) is not bool(words), "the headings"


def test_wide_characters_stand_below_each_other() -> None:
    assert layout.padded([["備份", "x"], ["abcd", "y"], ["e\u0301", "z"]]) == [
        "備份  x",
        "abcd  y",
        "e\u0301     z",
    ]


def test_nothing_is_padded_where_there_is_nothing() -> None:
    assert layout.padded([]) == []


# Rows that have no room.


def test_a_row_is_broken_between_columns_and_each_line_is_as_wide_as_there_is_room() -> None:
    first, second = layout.lines([10, 30, 30, 5], [20, 20, 20, 20], 40)
    assert (first.places, first.widths, first.indent) == ([0, 1], [10, 28], 0)
    assert (second.places, second.widths, second.indent) == ([2, 3], [29, 5], 4)


def test_a_column_that_is_wider_than_everything_has_a_line_for_itself() -> None:
    [line] = layout.lines([5, 36, 5], [20, 36, 20], 5 + 2 + 36 + 2 + 5)
    assert (line.places, line.widths) == ([0, 1, 2], [5, 36, 5])
    found = layout.lines([5, 36, 5], [20, 36, 20], 20)
    assert [(line.places, line.widths) for line in found] == [([0], [5]), ([1], [36]), ([2], [5])]


@pytest.mark.parametrize(
    ("seconds", "shown_as"),
    [
        (None, "-"),
        (0, "0.0s"),
        (9.94, "9.9s"),
        (10, "10s"),
        (59.9, "59s"),
        (60, "1m 0s"),
        (3_599, "59m 59s"),
        (3_600, "1h 0m"),
        (86_399, "23h 59m"),
        (86_400, "1d 0h"),
        (4 * 86_400 + 3 * 3_600, "4d 3h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float | None, shown_as: str) -> None:
    assert output.span(seconds) == shown_as


def test_a_terminal_shows_no_line_and_no_usual_column_that_says_nothing(
    shown: ShowsTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = JobInfo(
        id=7,
        status=JobStatus.ERROR,
        summary=LONG,
        priority=0,
        received=1.0,
        name=LONG,
        reason_ended=LONG,
    )
    waiting = JobInfo(id=8, status=JobStatus.QUEUED, summary="EXEC(true)", priority=4)
    monkeypatch.setattr(FullDaemon, "jobs", lambda *_, **__: [ended, waiting])
    heading, further, first, reason, second = shown("job", "list")
    # Neither has begun: there is no duration.
    assert heading.split() == ["ID", "STATE", "NAME", "SUMMARY", "RECEIVED"]
    assert (further.split(), reason.strip("x ")) == (["REASON_ENDED"], "\u2026")
    assert first.split()[:2] == ["7", "failed"]
    assert second.split() == ["8", "queued", "-", "EXEC(true)", "-"]
    # The priority of a job that has ended is not known any more.
    assert shown("job", "list", "--fields", "id,priority,ended") == [
        "ID  PRIORITY  ENDED",
        "7   -         -",
        "8   4         -",
    ]
