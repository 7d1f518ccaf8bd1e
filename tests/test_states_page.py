from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_agrees_with_the_tables() -> None:
    made = runpy.run_path(str(DOCS / "make_states.py"))["page"]()
    hint = "docs/states.md is out of date: run docs/make_states.py"
    assert (DOCS / "states.md").read_text(encoding="utf-8") == made, hint
