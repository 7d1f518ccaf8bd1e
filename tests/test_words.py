"""One word for one thing: names that were given up do not come back, and no two classes share one.

A name is given up when readers took it for something else. Each stands here beside the word that
has replaced it.
"""

from __future__ import annotations

import ast
import collections
from typing import TYPE_CHECKING

import pytest

from .checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDERS = ("actors", "cli", "rapi", "storage", "transport")

GIVEN_UP = {
    "aside": "in_thread",
    "aside_in_steps": "when_idle",
    "files_aside": "compaction",
    "steps_aside": "idle_work",
    "unread_rows": "lazy_rows",
    "UnreadRows": "LazyRows",
    "QuickRows": "RowLoader",
    "Traits": "JobClass",
    "Judged": "RuleVerdict",
    "Wants": "JobForecasts",
    "Waits": "OpenDependencies",
    "Standing": "ScheduleSnapshot",
    "standing": "queue_position",
    "ends": "unsatisfiable",
    "doomed": "unsatisfiable",
    "decided": "pass_outcome",
    "known_jobs": "pending_job",
    "playing": "replay",
    "player": "replay",
    "in_force": "pending_acks",
    "InForce": "PendingAcks",
    "job_heads": "job_headers",
    "Head": "JobHeader",
    "begin": "entry",
    "asked": "declared_needs",
    "Asked": "PendingRequest, ParsedQuery, QueryBody or OpcodeInput",
    "untouched": "read_only_source",
    "fates": "import_decision",
    "luxi_wishes": "luxi_options",
    "Surroundings": "MethodContext",
    "Gate": "OpcodeGate, StartGate or ConnectionGuard",
}
"""Names of files and of classes that were given up, each with what to say instead."""

VERBS = {"aside", "aside_in_steps"}
"""Of them, those that no function has either. The others are good names for a method."""


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def names_of(path: Path) -> Iterator[str]:
    """The names of the file, of its folder and classes, and of functions named like `VERBS`."""
    yield path.stem
    yield path.parent.name
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ClassDef():
                yield node.name
            case ast.FunctionDef() if node.name in VERBS:
                yield node.name


def test_no_name_that_was_given_up_is_in_use() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name} is now {GIVEN_UP[name]}"
        for path in sources()
        for name in names_of(path)
        if name in GIVEN_UP
    }
    assert found == set()


def test_no_two_classes_of_actors_have_the_same_name() -> None:
    places = collections.defaultdict(list)
    for path in sorted((ROOT / "actors").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@pytest.mark.parametrize("name", sorted(GIVEN_UP))
def test_a_name_that_was_given_up_is_found_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text(f"def {name}(): ...\n" if name in VERBS else f"class {name}: ...\n")
    assert name in set(names_of(path))
