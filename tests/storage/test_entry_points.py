from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from ganger.storage import entry_points

MODULE = '''
"""A package of others."""
VALUES = (1, 2)
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes an installed package with these lines in the group `ganger.things`."""
    (tmp_path / "things_of_a_test.py").write_text(MODULE)
    (tmp_path / "things_that_exit.py").write_text("raise SystemExit(4)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(entry_points, "_problems", {})

    def make(*lines: str) -> None:
        about = tmp_path / "things-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: things\nVersion: 1\n")
        (about / "entry_points.txt").write_text("\n".join(["[ganger.things]", *lines]))

    return make


def test_objects_come_in_the_order_of_their_names(package: Callable[..., None]) -> None:
    package("b = things_of_a_test:VALUES", "a = things_of_a_test:__name__")
    found = entry_points.load("ganger.things")
    assert [*found.objects.items()] == [("a", "things_of_a_test"), ("b", (1, 2))]
    assert found.problems == ()


@pytest.mark.parametrize(
    "place", ["no_such_module:X", "things_of_a_test:missing", "things_that_exit:X"]
)
def test_what_cannot_be_loaded_is_named_and_left_out(
    place: str, package: Callable[..., None]
) -> None:
    package(f"bad = {place}", "good = things_of_a_test:VALUES")
    found = entry_points.load("ganger.things")
    assert found.objects == {"good": (1, 2)}
    [problem] = found.problems
    assert problem.startswith(f"ganger.things: bad ({place}) cannot be loaded: ")
    assert entry_points.problems() == [problem]


def test_a_group_that_no_package_names_is_empty() -> None:
    assert entry_points.load("ganger.nothing") == ({}, ())


def test_packages_are_looked_through_once_whatever_groups_are_asked_for(
    package: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    package("a = things_of_a_test:VALUES")
    looks: list[int] = []
    whole = metadata.entry_points

    def look() -> object:
        looks.append(1)
        return whole()

    monkeypatch.setattr(metadata, "entry_points", look)
    assert entry_points.load("ganger.things").objects == {"a": (1, 2)}
    assert entry_points.load("ganger.nothing").objects == {}
    assert entry_points.load("ganger.things").objects == {"a": (1, 2)}
    assert len(looks) == 1
