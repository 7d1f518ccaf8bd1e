"""``ganger query`` and ``ganger query-fields``: what they ask for, and how they show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cli import stand_in

from ganger.cli.main import ganger
from ganger.storage.ganeti.queries.queue_resources import RESOURCES
from ganger.storage.query_views import FieldInfo, QueryAnswer

KINDS = {"archived": "bool", "disk": "unit", "ctime": "timestamp", "bogus": "unknown"}


class Daemon:
    """Answers every query with the same rows."""

    def __init__(self, *rows: list[tuple[int, Any]]) -> None:
        self.rows = list(rows)
        self.asked: list[tuple[Any, ...]] = []

    def query(self, what: str, fields: list[str], raw_filter: Any) -> QueryAnswer:
        self.asked.append((what, fields, raw_filter))
        return QueryAnswer(fields=[field(name) for name in fields], data=self.rows)

    def query_fields(self, what: str) -> list[FieldInfo]:
        self.asked.append((what,))
        return [field("id"), field("archived")]


def field(name: str) -> FieldInfo:
    kind: Any = KINDS.get(name, "other")
    return FieldInfo(name=name, title=name.title(), kind=kind, doc=f"The {name}")


def run(tmp_path: Path, daemon: Daemon, *words: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        stand_in.use(patch, daemon)
        return CliRunner().invoke(ganger, ["--data", str(tmp_path), *words])


@pytest.mark.parametrize("what", RESOURCES)
def test_what_is_shown_without_a_choice_exists(tmp_path: Path, what: str) -> None:
    daemon = Daemon()
    assert run(tmp_path, daemon, "query", what).exit_code == 0
    [(asked, fields, raw_filter)] = daemon.asked
    assert (asked, raw_filter) == (what, None)
    assert set(fields) <= RESOURCES[what].fields.keys()


@pytest.mark.parametrize(
    ("expression", "sent"),
    [('id == 5 or "a" in x', 'id == 5 or "a" in x'), (' ["==", "id", 5]', ["==", "id", 5])],
)
def test_a_filter_is_text_or_json(tmp_path: Path, expression: str, sent: object) -> None:
    daemon = Daemon()
    run(tmp_path, daemon, "query", "job", "--fields", "id", "--filter", expression)
    assert daemon.asked == [("job", ["id"], sent)]


def test_fields_are_chosen_or_added(tmp_path: Path) -> None:
    daemon = Daemon()
    run(tmp_path, daemon, "query", "job", "--fields", "ops,id")
    run(tmp_path, daemon, "query", "job", "--fields", "+ops")
    assert [fields for _, fields, _ in daemon.asked] == [
        ["ops", "id"],
        ["id", "status", "summary", "ops"],
    ]


@pytest.mark.parametrize(
    ("name", "status", "value", "shown"),
    [
        ("id", 0, 5, "5"),
        ("id", 0, "a\nb", "a\\nb"),
        ("id", 0, None, "-"),
        ("id", 2, None, "?"),
        ("id", 3, None, "-"),
        ("id", 4, None, "*"),
        ("archived", 0, True, "Y"),
        ("archived", 0, False, "N"),
        ("disk", 0, 512, "512M"),
        ("disk", 0, 1536, "1.5G"),
        ("disk", 0, 2 * 1024 * 1024, "2.0T"),
        ("ctime", 0, 0.0, "1970-01-01T00:00:00Z"),
        ("end_ts", 0, [0, 5], "1970-01-01T00:00:00Z"),
        ("tags", 0, ["a", "b"], "a,b"),
        ("tags", 0, [], "-"),
        ("ops", 0, {}, "-"),
        ("ops", 0, [{"a": 1}, "b"], '[{"a":1},"b"]'),
    ],
)
def test_each_value_is_shown_in_one_cell(
    tmp_path: Path, name: str, status: int, value: Any, shown: str
) -> None:
    daemon = Daemon([(status, value)])
    result = run(tmp_path, daemon, "query", "job", "--fields", name)
    assert result.stdout == f"{name.title()}\n{shown}\n"


def test_programs_get_values_by_field(tmp_path: Path) -> None:
    daemon = Daemon([(0, 5), (3, None)])
    result = run(tmp_path, daemon, "query", "job", "--fields", "id,end_ts", "-o", "json")
    assert json.loads(result.stdout) == [{"id": 5, "end_ts": None}]


def test_an_unknown_field_is_a_mistake(tmp_path: Path) -> None:
    result = run(tmp_path, Daemon(), "query", "job", "--fields", "id,bogus")
    assert result.exit_code == 2
    assert "--fields: job has no field 'bogus'; see `ganger query-fields job`" in result.stderr


def test_fields_are_listed(tmp_path: Path) -> None:
    daemon = Daemon()
    result = run(tmp_path, daemon, "query-fields", "job")
    assert result.stdout.splitlines() == [
        "name      title     kind   doc",
        "id        Id        other  The id",
        "archived  Archived  bool   The archived",
    ]
    chosen = run(tmp_path, daemon, "query-fields", "job", "--fields", "name,kind", "-o", "json")
    assert json.loads(chosen.stdout) == [
        {"name": "id", "kind": "other"},
        {"name": "archived", "kind": "bool"},
    ]
    assert daemon.asked == [("job",), ("job",)]


@pytest.mark.parametrize("command", ["query", "query-fields"])
def test_an_unknown_kind_is_a_mistake(tmp_path: Path, command: str) -> None:
    result = run(tmp_path, Daemon(), command, "disk")
    assert result.exit_code == 2
