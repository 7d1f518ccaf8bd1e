from __future__ import annotations

from typing import Any

import pytest

from ganger.actors.listeners.installed import Installed, installed
from ganger.actors.runtime.component import Component
from ganger.storage import entry_points
from ganger.storage.entry_points import Found


class Own(Component[Any]):
    name = "a_listener"


class Other(Component[Any]):
    name = "a_listener"


def found(monkeypatch: pytest.MonkeyPatch, *taken: str, **objects: Any) -> Installed:
    loaded = Found(objects, ("ganger.listeners: x cannot be loaded",))
    monkeypatch.setattr(entry_points, "load", lambda _: loaded)
    return installed(taken)


def test_a_class_of_a_package_is_a_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    classes, problems = found(monkeypatch, own=Own)
    assert classes == (Own,)
    assert problems == ("ganger.listeners: x cannot be loaded",)


def test_two_listeners_of_one_name_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    classes, problems = found(monkeypatch, own=Own, second=Other)
    assert classes == (Own,)
    assert problems[1:] == ("ganger.listeners: second: a_listener is there already",)
    classes, problems = found(monkeypatch, "a_listener", own=Own)
    assert classes == ()
    assert problems[1:] == ("ganger.listeners: own: a_listener is there already",)


@pytest.mark.parametrize("strange", [int, "a text", Own.name])
def test_what_is_no_component_is_left_out(monkeypatch: pytest.MonkeyPatch, strange: object) -> None:
    classes, problems = found(monkeypatch, strange=strange)
    assert classes == ()
    assert problems[1:] == ("ganger.listeners: strange: is not a class of `Component`",)
