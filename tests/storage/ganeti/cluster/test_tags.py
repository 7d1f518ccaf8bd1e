"""Rules for tags, and their search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ganger.storage import errors
from ganger.storage.ganeti import tags

RECORDED = json.loads(
    (Path(__file__).parents[3] / "compatibility" / "data" / "config.data").read_text()
)


@pytest.mark.parametrize("tag", ["a", "A_z-0.9", "owner:me", "a/b", "*", "x+y@z", "t" * 128])
def test_letters_digits_and_some_signs_make_a_tag(tag: str) -> None:
    tags.check(tag)


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("", "Tags cannot be empty"),
        ("t" * 129, "Tag too long (>128 characters)"),
        ("a b", "Tag contains invalid characters"),
        ("a\n", "Tag contains invalid characters"),
        ("a,b", "Tag contains invalid characters"),
        ("a=b", "Tag contains invalid characters"),
        (7, "Invalid tag type (not a string)"),
        (None, "Invalid tag type (not a string)"),
    ],
)
def test_what_is_no_tag_is_refused(tag: object, said: str) -> None:
    with pytest.raises(errors.TagError) as refused:
        tags.check(tag)
    assert refused.value.text == said


def test_tags_are_added_once_and_in_order() -> None:
    assert tags.added(["web"], ["prod", "web", "a"]) == ["a", "prod", "web"]
    assert tags.added([], []) == []
    with pytest.raises(errors.TagError, match="Tag contains invalid characters"):
        tags.added(["web"], ["prod", "not this"])


def test_an_object_has_no_more_tags_than_the_limit() -> None:
    full = [f"t{number}" for number in range(tags.TAGS_MAX)]
    assert tags.added(full, ["t0"]) == sorted(full)
    with pytest.raises(errors.TagError, match=r"^Too many tags$"):
        tags.added(full, ["more"])


def test_only_tags_that_are_there_are_removed() -> None:
    assert tags.removed(["a", "b", "c"], ["b"]) == ["a", "c"]
    with pytest.raises(errors.UnknownObjectError) as refused:
        tags.removed(["a"], ["z", "a", "y", "z"])
    assert refused.value.text == "Tag(s) 'y', 'z' not found"
    assert refused.value.error_code == "unknown_entity"
    with pytest.raises(errors.TagError, match="Tags cannot be empty"):
        tags.removed(["a"], [""])


def test_a_search_finds_part_of_a_tag_on_any_object() -> None:
    found = tags.search(RECORDED, "^(prod|b.*)$")
    assert found == [
        ("/cluster", "bench"),
        ("/cluster", "beta"),
        ("/instances/inst1.example.com", "prod"),
    ]
    assert tags.search(RECORDED, "nowhere") == []


def test_all_kinds_of_objects_are_searched_in_order() -> None:
    kinds = ("nodes", "networks", "instances", "nodegroups", "disks")
    configuration = {kind: {"u": {"name": kind, "tags": ["x"]}} for kind in kinds}
    found = tags.search({"cluster": {"tags": ["x", "y"]}, **configuration}, "x")
    assert [path for path, _ in found] == [
        "/cluster",
        "/instances/instances",
        "/nodes/nodes",
        "/nodegroup/nodegroups",
        "/network/networks",
    ]


@pytest.mark.parametrize("pattern", ["(", "a" * 1_001, "\ud800"])
def test_a_malformed_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(errors.BadRequestError, match=r"^Invalid search pattern '"):
        tags.search(RECORDED, pattern)


def test_a_configuration_without_tags_is_searched() -> None:
    assert tags.search({}, ".") == []
