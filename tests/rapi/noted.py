"""Stands for the daemon's log."""

from __future__ import annotations

from typing import Any

from ganger.rapi.notes import Notes


class Noted(Notes):
    """Keeps what would go to the log."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.lines.append(("info", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append(("warning", event, fields))

    def error(self, event: str, **fields: object) -> None:
        self.lines.append(("error", event, fields))

    def alive(self) -> None:
        """A sign of life is no line."""

    def taken(self) -> list[tuple[str, str, dict[str, Any]]]:
        """The lines since the last time."""
        found, self.lines = self.lines, []
        return found
