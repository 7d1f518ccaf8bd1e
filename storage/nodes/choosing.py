"""Which nodes the words of a user mean: names, and ``tag:TAG`` for all nodes with a tag. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from .. import errors
from . import node_states

TAG: Final = "tag:"
"""Begins a word that stands for the nodes with a tag."""


class Chosen(NamedTuple):
    """Nodes by name, each once. ``left_out``: those with a tag that are out of use, and why."""

    names: list[str]
    left_out: list[tuple[str, str]]


def is_group(word: str) -> bool:
    """Whether the word may mean several nodes."""
    return word.startswith(TAG)


def words_of(texts: Iterable[str]) -> list[str]:
    """The words in texts that have commas between them, each once.

    >>> words_of(["web1,tag:db", "web1"])
    ['web1', 'tag:db']
    """
    return [*dict.fromkeys(word for text in texts for word in text.split(",") if word)]


def chosen(nodes: Sequence[Mapping[str, Any]], words: Iterable[str]) -> Chosen:
    """The nodes that these words mean, in their order, those of a tag by name.

    ``nodes``: the objects of all nodes. A name is taken as it is: whether there is such a node is
    checked when a command for it is submitted. `BadRequestError`: no node in use has a tag.
    """
    names: dict[str, None] = {}
    left_out: dict[str, str] = {}
    for word in words:
        if not is_group(word):
            names[word] = None
            continue
        tag = word.removeprefix(TAG)
        tagged = sorted(
            (str(node.get("name")), node_states.state_of(node))
            for node in nodes
            if tag in (node.get("tags") or ())
        )
        in_use = [name for name, state in tagged if not state]
        if not in_use:
            raise errors.BadRequestError(_nobody(nodes, tag, tagged))
        names |= dict.fromkeys(in_use)
        left_out |= {name: state for name, state in tagged if state}
    return Chosen([*names], [(name, why) for name, why in left_out.items() if name not in names])


def _nobody(nodes: Iterable[Mapping[str, Any]], tag: str, tagged: Sequence[tuple[str, str]]) -> str:
    if tagged:
        away = ", ".join(f"{name} is {state}" for name, state in tagged)
        return f"no node with the tag {tag!r} is in use: {away}"
    known = ", ".join(sorted({str(one) for node in nodes for one in node.get("tags") or ()}))
    return f"no node has the tag {tag!r}; tags of nodes: {known or 'none'}"
