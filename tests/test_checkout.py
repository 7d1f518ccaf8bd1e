"""What lies in the checkout: nothing that tests leave there, and at its root what is known."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.checkout import ROOT, Untouched


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / ".gitignore", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("a page that is being written")
    return tmp_path


def exit_code(run: Untouched, written: Path | None) -> int:
    run.pytest_sessionstart()
    if written is not None:
        written.write_text("left by a test")
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    run.pytest_sessionfinish(session)
    return int(session.exitstatus)


@pytest.mark.parametrize(
    ("written", "left"),
    [
        (None, []),
        (".coverage", []),
        ("LOCAL.data", ["?? LOCAL.data"]),
        ("docs/LOCAL.data", ["?? docs/LOCAL.data"]),
    ],
)
def test_a_run_of_the_tests_that_leaves_a_file_in_the_checkout_fails(
    checkout: Path, written: str | None, left: list[str]
) -> None:
    run = Untouched(checkout)
    assert exit_code(run, None if written is None else checkout / written) == bool(left)
    assert run.left == left


def test_a_run_outside_a_checkout_has_nothing_to_compare(tmp_path: Path) -> None:
    assert exit_code(Untouched(tmp_path), tmp_path / "LOCAL.data") == 0


@pytest.mark.parametrize("name", ["LOCAL.data", "ganger/__init__.py"])
def test_a_name_at_the_root_that_the_list_does_not_have_is_refused(
    checkout: Path, name: str
) -> None:
    command = ["make", "--no-print-directory", "check-root"]
    assert subprocess.run(command, cwd=checkout, check=True, capture_output=True).returncode == 0
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).touch()
    done = subprocess.run(command, cwd=checkout, check=False, capture_output=True, text=True)
    assert done.returncode
    assert name.partition("/")[0] in done.stderr
