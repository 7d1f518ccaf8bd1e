"""What the processes that run tests tell: all that goes wrong or is skipped, and each call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.checkout import ROOT

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
PLUGINS = ("cov", "xdist", "hypothesispytest", "timeout", "cacheprovider")
LEFT_OUT = [word for name in PLUGINS for word in ("-p", f"no:{name}")]


def test_whatever_is_not_well_is_told_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "test_each.py").write_text(TESTS, encoding="utf-8")
    words = ["-q", "-rs", "-c", "/dev/null", *LEFT_OUT, "-p", "tests.told", str(tmp_path)]
    given = [sys.executable, "-m", "pytest", *words]
    said = subprocess.run(given, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert "1 failed, 2 passed, 2 skipped, 2 errors" in said, said
    for reason in ("it broke", "it broke before", "it broke after", "left out", "on the way"):
        assert f": {reason}\n" in said
