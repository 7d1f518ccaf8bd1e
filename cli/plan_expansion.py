"""``for_each`` in a plan: a job that is written once and submitted for each of several nodes. Pure.

``for_each: {node: "tag:web"}`` makes a job for each node that `choosing.chosen` finds. ``{node}``
in any of the job's texts becomes the node's name. The jobs are called ``NAME-NODE``, unless the
name says ``{node}`` itself. ``after: [NAME]`` in another job means all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..storage import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    FindNodes = Callable[[Sequence[str]], Sequence[str]]
    """The names of the nodes that these words mean."""

KEY = "for_each"
_MARK = "{node}"


def expanded(entries: Sequence[Any], find_nodes: FindNodes | None) -> list[Any]:
    """The jobs of a plan, each of those with ``for_each`` as often as there are nodes.

    Raises `PlanError`, and what ``find_nodes`` raises.
    """
    if not any(isinstance(entry, dict) and KEY in entry for entry in entries):
        return [*entries]
    groups: dict[str, list[str]] = {}
    found: list[Any] = []
    for number, entry in enumerate(entries):
        if not (isinstance(entry, dict) and KEY in entry):
            found.append(entry)
            continue
        place = f"jobs[{number}].{KEY}"
        words = _words(entry[KEY], place)
        if find_nodes is None:
            raise errors.PlanError(f"{place}: no nodes are known here")
        own = [_for_node(entry, node) for node in find_nodes(words)]
        found += own
        if isinstance(name := entry.get("name"), str):
            groups[name] = [one["name"] for one in own]
    return [_behind_groups(entry, groups) for entry in found]


def _words(given: object, place: str) -> list[str]:
    match given:
        case {"node": str(word), **rest} if not rest:
            return [word]
        case {"node": [str(), *_] as words, **rest} if not rest:
            if all(isinstance(word, str) for word in words):
                return list[str](words)
    expected = "expected {node: NAME}, {node: 'tag:TAG'} or {node: [NAME, ...]}"
    raise errors.PlanError(f"{place}: {expected}, got {given!r}")


def _for_node(entry: Mapping[str, Any], node: str) -> dict[str, Any]:
    job: dict[str, Any] = {
        name: _filled(value, node) for name, value in entry.items() if name != KEY
    }
    name = entry.get("name")
    if isinstance(name, str) and _MARK not in name:
        job["name"] = f"{name}-{node}"
    return job


def _filled(value: Any, node: str) -> Any:  # noqa: ANN401 - a decoded document
    if isinstance(value, str):
        return value.replace(_MARK, node)
    if isinstance(value, list):
        return [_filled(one, node) for one in value]
    if isinstance(value, dict):
        return {name: _filled(one, node) for name, one in value.items()}
    return value


def _behind_groups(entry: object, groups: Mapping[str, Sequence[str]]) -> object:
    """The job, which waits for all jobs of a group that it names."""
    if not isinstance(entry, dict) or "after" not in entry:
        return entry
    after = entry["after"]
    written = [after] if isinstance(after, str) else after
    if not isinstance(written, list):
        return entry
    behind: list[Any] = []
    for one in written:
        match one:
            case str(name) if name in groups:
                behind += groups[name]
            case dict() if len(one) == 1 and next(iter(one)) in groups:
                ((name, words),) = one.items()
                behind += [{each: words} for each in groups[name]]
            case _:
                behind.append(one)
    return {**entry, "after": behind}
