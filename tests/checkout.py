"""Fails a run of the tests that leaves anything in the checkout: tests write below ``tmp_path``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


class Untouched:
    """A plugin of pytest that compares what git says before the first test and after the last.

    Caches that ``.gitignore`` names may change. Where the tests run without git or its folder,
    nothing is compared.
    """

    def __init__(self, folder: Path = ROOT) -> None:
        self._folder = folder
        self._before: set[str] = set()
        self.left: list[str] = []

    def pytest_sessionstart(self) -> None:
        self._before = self._changes()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.left = sorted(self._changes() - self._before)
        if self.left and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left:
            terminalreporter.section("tests have written into the checkout", red=True)
            for line in self.left:
                terminalreporter.line(line)

    def _changes(self) -> set[str]:
        command = ["git", "--no-optional-locks", "status", "--porcelain", "--untracked-files=all"]
        try:
            done = subprocess.run(
                command, cwd=self._folder, capture_output=True, text=True, check=True
            )
        except (FileNotFoundError, subprocess.CalledProcessError):
            return set()
        return set(done.stdout.splitlines())
