"""The processes that run tests: what they tell, what is together, what is left when one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.checkout import ROOT
from tests.shared_out import groups_of

TESTS = """
import pytest

@pytest.fixture
def breaks_before():
    raise RuntimeError("it broke before")

@pytest.fixture
def breaks_after():
    yield
    raise RuntimeError("it broke after")

def test_well(): pass
def test_wrong(): raise RuntimeError("it broke")
def test_before(breaks_before): pass
def test_after(breaks_after): pass
@pytest.mark.skip(reason="left out")
def test_left_out(): pass
def test_skips(): pytest.skip("on the way")
"""
FATAL = """
import os, pytest

@pytest.fixture(scope="session", autouse=True)
def noted(tmp_path_factory):
    print("set up")
    yield
    with open("ended", "a") as file:
        file.write(f"{tmp_path_factory.getbasetemp().name}\\n")

@pytest.mark.parametrize("number", range(40))
def test_kills_some(number, capfd):
    os.write(1, b"said by a test")
    assert capfd.readouterr().out == "said by a test"
    if number in (3, 21):
        os.kill(os.getpid(), 9)
"""
OTHERS = """
import os, warnings

def test_same_1(): os.environ["HERE"] = "1"
def test_warns(): warnings.warn("mind this")
def test_same_2(): assert os.environ["HERE"] == "1"
"""
SHARES = """
import os, pytest

go = os.open("go", os.O_RDWR)

@pytest.fixture(scope="session")
def shared():
    yield
    with open("ended", "a") as file:
        file.write("taken away\\n")

@pytest.mark.parametrize("number", [1, 2])
def test_waits(shared, number):
    with open("begun", "w") as file:
        file.write(str(number))
    assert os.read(go, 1)
"""
MANY = "import pytest\n@pytest.mark.parametrize('n', range(500))\ndef test_(n): assert n != 1\n"
PLUGINS = ("cov", "hypothesispytest", "timeout", "cacheprovider")
LEFT_OUT = [word for name in PLUGINS for word in ("-p", f"no:{name}")]
BEGIN = (
    "import sys, pytest; sys.path.insert(0, {root!r}); from tests.shared_out import SharedOut;"
    "plugin = SharedOut({count}, ('test_each.py::test_same',));"
    "sys.exit(pytest.main(sys.argv[1:], plugins=[plugin]))"
)


def begun(folder: Path, text: str, *words: str, count: int = 2) -> subprocess.Popen[str]:
    (folder / "test_each.py").write_text(text, encoding="utf-8")
    given = [sys.executable, "-c", BEGIN.format(root=str(ROOT), count=count)]
    given += ["-q", "-rs", "-c", "/dev/null", "--rootdir", str(folder), *LEFT_OUT, *words]
    return subprocess.Popen(
        given,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def said(folder: Path, text: str, *words: str, count: int = 2) -> str:
    return begun(folder, text, *words, count=count).communicate(timeout=120)[0]


def test_whatever_is_not_well_is_told_with_its_reason(tmp_path: Path) -> None:
    # There are more processes than tests.
    told = said(tmp_path, TESTS + OTHERS, count=12)
    assert "1 failed, 5 passed, 2 skipped, 1 warning, 2 errors" in told, told
    for reason in ("it broke", "it broke before", "it broke after", "left out", "on the way"):
        assert f": {reason}\n" in told
    assert "UserWarning: mind this" in told


def test_a_test_whose_process_dies_has_failed_and_the_others_run(tmp_path: Path) -> None:
    told = said(tmp_path, FATAL)
    assert "2 failed, 38 passed" in told, told
    assert told.count("The process that ran this test ended (-9).") == 2
    # A process's folder is its own, and what the session's fixtures leave is taken away there.
    ended = (tmp_path / "ended").read_text(encoding="utf-8").split()
    assert len(ended) == len(set(ended)) == 2


def test_what_belongs_together_is_one_group() -> None:
    names = ["a::1", "b/x::1", "a::2", "b/y::1"]
    assert groups_of(names, ("b/",)) == [[0], [1, 3], [2]]


def test_a_run_stops_at_the_first_failure_that_it_may_have(tmp_path: Path) -> None:
    told = said(tmp_path, MANY, "--maxfail=1")
    assert "stopping after 1 failures" in told
    assert "1 failed" in told


def test_what_breaks_between_tests_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_report_to_serializable(report): raise RuntimeError('broken between')\n",
        encoding="utf-8",
    )
    told = said(tmp_path, "def test_one(): pass")
    assert "INTERNALERROR" in told
    assert "broken between" in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_broken_off_takes_away_what_its_tests_share(
    tmp_path: Path, number: signal.Signals
) -> None:
    for name in ("begun", "go"):
        os.mkfifo(tmp_path / name)
    process = begun(tmp_path, SHARES)
    with (tmp_path / "begun").open("r+b", buffering=0) as pipe:
        assert {pipe.read(1), pipe.read(1)} == {b"1", b"2"}
    if number is signal.SIGINT:
        # As a terminal does it.
        os.killpg(process.pid, number)
    else:
        process.kill()
        # The tests themselves go on: the processes find nobody to tell how they went.
        (tmp_path / "go").write_text("12", encoding="utf-8")
    # All that have its streams have ended.
    process.communicate(timeout=60)
    assert (tmp_path / "ended").read_text(encoding="utf-8") == "taken away\n" * 2
