"""Tags of objects: their rules, and the search over all objects by regular expression."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from .. import errors
from ..filters import patterns
from ..filters.filters import PATTERN_LENGTH_MAX

TAG_LENGTH_MAX: Final = 128
"""Longest tag, in characters, as in Ganeti."""

TAGS_MAX: Final = 4_096
"""Most tags of one object, as in Ganeti."""

_VALID = re.compile(r"[\w.+*/:@-]+")

_PATHS: Final = {
    "instances": "/instances",
    "nodes": "/nodes",
    "nodegroups": "/nodegroup",
    "networks": "/network",
}
"""For each container of the configuration the first part of its paths in a search."""


def check(tag: object) -> None:
    """Raise `TagError` unless ``tag`` may be a tag."""
    if not isinstance(tag, str):
        raise errors.TagError("Invalid tag type (not a string)")
    if len(tag) > TAG_LENGTH_MAX:
        raise errors.TagError(f"Tag too long (>{TAG_LENGTH_MAX} characters)")
    if not tag:
        raise errors.TagError("Tags cannot be empty")
    if not _VALID.fullmatch(tag):
        raise errors.TagError("Tag contains invalid characters")


def added(tags: Iterable[str], new: Iterable[str]) -> list[str]:
    """The tags of an object with some more, in order; `TagError` if one is malformed.

    >>> added(["web"], ["prod", "web"])
    ['prod', 'web']
    """
    new = list(new)
    for tag in new:
        check(tag)
    found = {*tags, *new}
    if len(found) > TAGS_MAX:
        raise errors.TagError("Too many tags")
    return sorted(found)


def removed(tags: Collection[str], gone: Iterable[str]) -> list[str]:
    """The tags of an object without some, in order; all of ``gone`` must be there.

    `TagError` if one is malformed, `UnknownObjectError` names those that are not there.
    """
    gone = list(gone)
    for tag in gone:
        check(tag)
    missing = sorted(set(gone) - set(tags))
    if missing:
        listed = ", ".join(f"'{tag}'" for tag in missing)
        raise errors.UnknownObjectError(f"Tag(s) {listed} not found")
    return sorted(set(tags) - set(gone))


def search(configuration: Mapping[str, Any], pattern: str) -> list[tuple[str, str]]:
    """The path of each object with a tag in which the pattern is found, and the tag.

    The cluster comes first, then instances, nodes, groups and networks, each in the order of their
    UUIDs. `BadRequestError` if the pattern is malformed.
    """
    try:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise ValueError(f"longer than {PATTERN_LENGTH_MAX} characters")  # noqa: TRY301
        is_found_in = patterns.compiled(pattern).search
    except ValueError as error:
        text = f"Invalid search pattern '{pattern[:PATTERN_LENGTH_MAX]}': {error}"
        raise errors.BadRequestError(text) from error
    return [
        (path, tag)
        for path, holder in _objects(configuration)
        for tag in holder.get("tags") or ()
        if is_found_in(tag.encode(errors="replace"))
    ]


def _objects(configuration: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "/cluster", configuration.get("cluster", {})
    for container, path in _PATHS.items():
        for _, holder in sorted(configuration.get(container, {}).items()):
            yield f"{path}/{holder.get('name', '')}", holder
