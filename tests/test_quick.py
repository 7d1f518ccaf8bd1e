"""Which tests `make quick` runs, how many examples they draw; which tests one process runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, rule
from tests import quick
from tests.checkout import ROOT
from tests.conftest import ONE_PROCESS

SHARED = re.compile(r'scope="(module|session)"')
LARGE = re.compile(r"\b(Daemon|Served|Serving)\(.*\bas \w+:|Serving\(context|copytree\(")
"""What begins a daemon or a server, or copies the package."""


def test_one_process_runs_all_tests_that_share_a_daemon() -> None:
    files = {str(path.relative_to(ROOT)): path for path in ROOT.glob("tests/**/test_*.py")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    sharing = {name for name, text in texts.items() if SHARED.search(text) and LARGE.search(text)}
    # Each process that runs one of these tests would begin the daemon anew.
    assert [name for name in sorted(sharing) if not name.startswith(ONE_PROCESS)] == []
    stale = [begin for begin in ONE_PROCESS if not any(name.startswith(begin) for name in files)]
    assert stale == []


class Marked:
    """Stands for a test."""

    obj = cls = None

    def __init__(self, *marks: str) -> None:
        self._marks = marks

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self._marks else None


def test_what_is_marked_as_slow_is_left_out() -> None:
    slow, other = Marked("slow"), Marked("timeout")
    items: list[Any] = [slow, other]
    left_out: list[Any] = [*quick.choose(items)]
    assert left_out == [slow]
    assert items == [other]


def drawing_100() -> tuple[list[int], Callable[[], None]]:
    """A test of hypothesis, and what it has drawn."""
    drawn: list[int] = []

    @settings(max_examples=100, database=None)
    @given(strategies.integers())
    def draw(number: int) -> None:
        drawn.append(number)

    return drawn, draw


def test_a_test_of_hypothesis_draws_few_examples() -> None:
    drawn, draw = drawing_100()
    quick.draw_few(SimpleNamespace(obj=draw, cls=None))
    draw()
    assert 0 < len(drawn) <= quick.EXAMPLES


def test_a_test_of_hypothesis_usually_draws_a_share_once() -> None:
    drawn, draw = drawing_100()
    quick.draw_usual([SimpleNamespace(obj=draw, cls=None)] * 3)
    draw()
    assert len(drawn) == 100 * quick.USUAL_SHARE


def test_a_model_plays_few_cases() -> None:
    played = []

    class Model(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            played.append(self)

        @rule()
        def nothing(self) -> None:
            """A step."""

    case = Model.TestCase
    case.settings = settings(max_examples=100, stateful_step_count=1, database=None)
    quick.draw_few(SimpleNamespace(obj=None, cls=case))
    case("runTest").runTest()
    # Hypothesis may look at one before.
    assert 0 < len(played) <= quick.EXAMPLES + 1


def test_every_file_and_folder_that_it_names_is_there() -> None:
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", "quick"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    [line] = [line for line in done.stdout.splitlines() if "--quick" in line]
    named = [word for word in shlex.split(line) if word.startswith("tests/")]
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []
