"""The core runs without the folders `ganeti` and `lab` (`make core` runs all of its tests so)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.checkout import ROOT
from tests.core_alone import FOLDER

PARTS = ("tests/actors/config/test_config_store.py", "tests/cli/test_help_text.py")

IMPORT_ALL = """
count = 0
for found in pkgutil.walk_packages(ganger.__path__, "ganger."):
    below = found.name.split(".")
    if below[1] in ("actors", "cli", "rapi", "storage", "transport"):
        if not {"ganeti", "lab"} & {*below}:
            importlib.import_module(found.name)
            count += 1
print(count)
"""


def run(*words: str) -> str:
    """What this Python prints that finds no hidden folder."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_module_of_the_core_imports_what_is_hidden() -> None:
    found = run("-c", "import pkgutil, importlib, ganger\n" + IMPORT_ALL)
    assert int(found) > 400


def test_a_daemon_runs_a_job_without_them(tmp_path: Path) -> None:
    data = ("-m", "ganger.cli.entry", "--data", str(tmp_path / "data"))
    run(*data, "up", "--no-rapi")
    try:
        assert run(*data, "exec", "--", "echo", "hello").endswith("hello\n")
        status = run(*data, "status")
        assert "LUXI" not in status
        assert "WConfD" not in status
        assert "import-ganeti" not in run(*data, "--help")
    finally:
        run(*data, "down")


def test_tests_of_the_core_pass_without_them() -> None:
    told = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--quick", *PARTS)
    assert " passed" in told
