"""A command of a transcript, and what all players of a subject have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self

import pytest


def listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things))


class Command(NamedTuple):
    """``name word ... key=value ...``, and the lines of data below it."""

    name: str
    words: list[str]
    pairs: list[tuple[str, str]]
    data: list[str]

    def get(self, key: str, default: str = "") -> str:
        return dict(self.pairs).get(key, default)

    def number(self, key: str, default: int = 0) -> int:
        return int(self.get(key, str(default)))

    @property
    def id(self) -> int:
        return int(self.words[0])

    @property
    def ids_behind(self) -> list[int]:
        """The ids behind the first word."""
        return [int(word) for word in self.words[1:]]

    @property
    def ids(self) -> list[int]:
        return [int(word) for word in self.words]


class Player(ABC):
    """Carries out the commands of one transcript: a method for each."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.patch = patch
        self.new()

    @abstractmethod
    def new(self, _: Command | None = None) -> str:
        """Begin another story."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 - most have nothing to clean up
        """Leave nothing behind."""
