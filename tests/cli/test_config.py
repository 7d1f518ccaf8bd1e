"""``ganger config``: how values on the command line are read, and how the history is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli import stand_in

from ganger.cli.config import json_value
from ganger.cli.main import ganger
from ganger.storage import errors
from ganger.transport.messages import HistoryLine, ObjectsCounted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("null", None),
        ('["a"]', ["a"]),
        ("web", "web"),
        ("NaN", "NaN"),
        ("", ""),
        ("\udcff", "\udcff"),
    ],
)
def test_a_value_is_json_or_a_text(text: str, value: object) -> None:
    assert json_value(text) == value


def test_a_value_that_is_nested_too_deeply_is_a_wrong_command_line() -> None:
    with pytest.raises(errors.UsageError, match="nested deeper than can be read"):
        json_value("[" * 100_000)


class History:
    """Answers as a daemon whose configuration has this history."""

    def count_objects(self) -> ObjectsCounted:
        return ObjectsCounted(7, {})

    def config_history(self, count: int, *, before: int | None = None) -> list[HistoryLine]:
        changes: list[tuple[str, str | None, str | None]] = [
            ("cluster.a\nb", None, "5"),
            ("cluster.mtime", "1.0", "2.0"),
        ]
        why = "a\n8  1970-01-01T00:00:00Z  nobody"
        entry = HistoryLine(serial=7, time=0.0, who="root", why=why, changes=changes)
        return [entry][:count] if before is None or before > entry.serial else []


def test_what_a_user_wrote_makes_no_lines_of_its_own(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stand_in.use(patch, History())
        result = CliRunner().invoke(ganger, ["--data", str(tmp_path), "config", "history"])
    assert result.stdout.splitlines() == [
        "7  1970-01-01T00:00:00Z  root: a\\n8  1970-01-01T00:00:00Z  nobody",
        "    + cluster.a\\nb = 5",
    ]


@pytest.mark.parametrize(
    ("serials", "exit_code", "text"),
    [
        (["8"], 1, "serial number 8: the newest change has serial number 7"),
        (["6", "999"], 1, "serial number 999: the newest change has serial number 7"),
        (["7", "6"], 2, "UNTIL (6) is before SINCE (7): give the smaller serial number first"),
        (["6", "7"], 0, "+ cluster.a\\nb = 5"),
        (["7", "7"], 0, ""),
        (["7"], 0, ""),
    ],
)
def test_what_no_change_has_as_serial_number_is_named(
    tmp_path: Path, serials: list[str], exit_code: int, text: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stand_in.use(patch, History())
        result = CliRunner().invoke(ganger, ["--data", str(tmp_path), "config", "diff", *serials])
    assert result.exit_code == exit_code
    assert text in f"{result.output}{result.exception}"
    assert bool(result.stdout) is (serials == ["6", "7"])


@pytest.mark.parametrize(("path", "shown"), [("", "''"), ("/", "'/'")])
def test_a_path_without_a_kind_is_a_wrong_command_line(
    tmp_path: Path, path: str, shown: str
) -> None:
    result = CliRunner().invoke(ganger, ["--data", str(tmp_path), "config", "get", path])
    assert result.exit_code == 2
    assert f"{shown} is no path: give a kind of objects" in result.output
