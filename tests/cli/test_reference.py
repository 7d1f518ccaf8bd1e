from __future__ import annotations

import runpy
from pathlib import Path

from tests.core_alone import NEEDS_HIDDEN

DOCS = Path(__file__).parents[2] / "docs"


@NEEDS_HIDDEN
def test_the_reference_agrees_with_the_commands() -> None:
    made = runpy.run_path(str(DOCS / "make_cli_reference.py"))["reference"]()
    hint = "docs/cli.md is out of date: run docs/make_cli_reference.py"
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == made, hint
