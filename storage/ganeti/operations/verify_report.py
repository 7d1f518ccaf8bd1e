"""The lines with which Ganeti's opcodes that verify tell what they find. Pure.

Source: Ganeti's ``_VerifyErrors``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .base import AnyOpcode

CLUSTER: Final = "cluster"
_ERROR: Final = "ERROR"
_WARNING: Final = "WARNING"


class Report:
    """The lines of the log, and whether one of them is an error."""

    def __init__(self, opcode: AnyOpcode) -> None:
        self._opcode = opcode
        self.lines: list[str] = []
        self.is_bad = False

    def begin(self, section: str) -> None:
        """Begin a section."""
        self.lines.append(f"* {section}")

    def note(self, text: str) -> None:
        """Add a note."""
        self.lines.append(f"  - NOTICE: {text}")

    def error(
        self,
        code: str,
        text: str,
        *,
        of: tuple[str, str | None] = (CLUSTER, None),
        is_warning: bool = False,
    ) -> None:
        """Add an error, or a warning, also if the opcode says so of errors with this code.

        ``of``: the kind of object that it is about, and its name.
        """
        is_ignored = is_warning or code in self._opcode.ignore_errors
        severity = _WARNING if is_ignored else _ERROR
        kind, name = of
        form = f"{severity}:{code}:{kind}:{name}:{text}"
        if not self._opcode.error_codes:
            form = f"{severity}: {kind} {name or ''}: {text}"
        self.lines.append(f"  - {form}")
        self.is_bad |= not is_ignored

    def error_if(self, found: Sequence[str], code: str, text: str) -> None:
        """Add an error about what was found, also if the opcode wants to see all of them."""
        if found or self._opcode.debug_simulate_errors:
            self.error(code, f"{text}: {', '.join(found)}")
