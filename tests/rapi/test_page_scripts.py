"""The scripts of the page, as texts: without a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ganger.rapi import page
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import Outcome

FOLDER = Path(page.__file__).parent
SCRIPTS = [name for name in page.FILES if name.endswith(".js")]
PARTS = re.findall(r"^export function (\w+)", (FOLDER / "page_parts.js").read_text(), re.MULTILINE)


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_script_imports_the_parts_that_it_calls(script: str) -> None:
    """A name that is missing fails only where it is called, such as beside an error."""
    text = (FOLDER / script).read_text()
    called = {name for name in PARTS if re.search(rf"(?:\.{{3}}|(?<![.\w])){name}\(", text)}
    own = set(re.findall(r"function (\w+)\(", text))
    lists = re.findall(r"^import \{(.*?)\}", text, re.MULTILINE)
    imported = {name.strip() for names in lists for name in names.split(",")}
    assert called - own <= imported


def test_the_page_knows_which_statuses_are_final() -> None:
    text = (FOLDER / "page_parts.js").read_text()
    found = re.search(r"^export const FINAL = \[(.*)\];", text, re.MULTILINE)
    assert found is not None
    final = re.findall(r"\w+", found.group(1))
    assert final == [status for status in JobStatus if status.is_final]


@pytest.mark.parametrize("word", [*map(str, JobStatus), *map(str, Outcome)])
def test_each_status_and_outcome_has_a_colour(word: str) -> None:
    assert f".status.{word}" in (FOLDER / "page.css").read_text()
