"""The scripts of the page, as texts: without a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ganger.rapi import page
from ganger.storage.jobs.jobs import JobStatus

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


def test_the_list_of_jobs_offers_every_status() -> None:
    text = (FOLDER / "page_jobs.js").read_text()
    found = re.search(
        r"^const FINAL = \[(.*)\];\nconst STATUSES = \[(.*), \.\.\.FINAL\];", text, re.MULTILINE
    )
    assert found is not None
    final, others = (re.findall(r"\w+", names) for names in found.groups())
    assert [*others, *final] == list(JobStatus)
    assert final == [status for status in JobStatus if status.is_final]
