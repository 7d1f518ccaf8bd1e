"""Cuts a page into its sentences, and reads which tests hold them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NO_CLAIM = "(says nothing that could be wrong)"
"""Stands in place of tests under a sentence that leads, defines or judges."""

_CODE = re.compile(r"^```[\s\S]*?^```$|^(?: {4}.*\n)+", re.MULTILINE)
_END = re.compile(r"(?<=[.?!])(?:\*\*)? +(?=[A-Z`*\[])")
_HEADING = re.compile(r"^(?:#.*|\|[ -]*\|.*|\| (?:status|folder) \|.*)$")


def of_page(text: str) -> list[str]:
    """The sentences of a page in their order: of paragraphs, items and rows, without its code."""
    prose = _CODE.sub("\n", text)
    units: list[list[str]] = [[]]
    for line in prose.splitlines():
        if not line.strip() or line.startswith(("- ", "|", "#")):
            units.append([])
        if line.strip() and not _HEADING.match(line):
            units[-1].append(line.strip())
    return [
        sentence.strip()
        for unit in units
        if unit
        for sentence in _END.split(" ".join(unit))
        if sentence.strip()
    ]


def of_table(path: Path) -> dict[str, list[str]]:
    """Each sentence with its tests, from a file of lines: a sentence, then its tests, indented."""
    found: dict[str, list[str]] = {}
    tests: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            tests.append(line.strip())
        elif line:
            assert line not in found, line
            tests = found[line] = []
    return found
