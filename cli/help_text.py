"""Wraps help texts between words, and not within the name of an option, a date or a command.

click breaks a line at any hyphen or space, so that ``--dry-run`` or `` `ganger up` `` may stand on
two lines. It does not wrap lines that must not be joined, so that a narrow terminal breaks them
anywhere.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

_SPAN_CHARACTERS_MAX = 48
"""A longer command or example is wrapped like any other text."""

_HYPHEN, _SPACE = "\N{NON-BREAKING HYPHEN}", "\N{NO-BREAK SPACE}"
_BACK = str.maketrans({_HYPHEN: "-", _SPACE: " "})
_WORD_HYPHEN = re.compile(r"(?<=\S)-|-(?=\S)")
# An apostrophe within a word quotes nothing.
_SPAN = re.compile(r"`[^`]+`|(?<![^\s(])'[^']+'(?!\w)|\[default: [^]]+\]")
_APART = "\b\n"
"""click's mark before lines that must not be joined."""

_HEAD = re.compile(r"\s*(?:\S+(?: \S+)* {2,})?")


class HelpFormatter(click.HelpFormatter):
    """click's formatter, which breaks lines between words only."""

    def write(self, string: str) -> None:
        """Take a piece of the page, as it will be shown."""
        super().write(string.translate(_BACK))

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        width = self.width - self.current_indent
        paragraphs = text.split("\n\n")
        super().write_text("\n\n".join(_paragraph(one, width) for one in paragraphs))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write a list of terms, such as options, and what each means."""
        found = list(rows)
        first = min(max((len(term) for term, _ in found), default=0), col_max)
        width = self.width - first - 2 * col_spacing
        kept = [(term, _unbroken(text, width)) for term, text in found]
        super().write_dl(kept, col_max, col_spacing)


def _paragraph(text: str, width: int) -> str:
    if not text.startswith(_APART):
        return _unbroken(text, width)
    lines: list[str] = []
    for line in text.removeprefix(_APART).split("\n"):
        if lines and _goes_on(lines[-1], line):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return _APART + "\n".join(wrapped for line in lines for wrapped in _hanging(line, width))


def _goes_on(before: str, line: str) -> bool:
    """Whether the line continues the one before: it begins below that one's text."""
    indent = len(line) - len(line.lstrip())
    return indent > 0 and indent == _head(before)


def _head(line: str) -> int:
    found = _HEAD.match(line)
    return 0 if found is None else found.end()


def _hanging(line: str, width: int) -> list[str]:
    """The line, wrapped if it is too long: the further lines begin below its text."""
    if len(line) <= width:
        return [line]
    indent = " " * _head(line)
    found = textwrap.wrap(
        _unbroken(line, width), width, subsequent_indent=indent, break_long_words=False
    )
    return [one.translate(_BACK) for one in found]


def _unbroken(text: str, width: int) -> str:
    """The text, with non-breaking hyphens and spaces where words belong together."""

    def joined(found: re.Match[str]) -> str:
        span = found[0]
        return re.sub(r"\s+", _SPACE, span) if len(span) <= longest else span

    longest = min(width, _SPAN_CHARACTERS_MAX)

    return _WORD_HYPHEN.sub(_HYPHEN, _SPAN.sub(joined, text))
