"""Chooses the width of each column of a table, and the line of a row on which it stands.

Pure: widths in, widths out. A row that does not fit on one line is broken between two columns: a
terminal would break it anywhere, even within a number.
"""

from __future__ import annotations

import textwrap
import unicodedata
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GAP = 2
"""Characters between two columns."""

INDENT = 4
"""Indentation of the further lines of a row."""


class Line(msgspec.Struct, frozen=True):
    """One line of each row: the places of its columns, and how wide each is."""

    places: list[int]
    widths: list[int]
    indent: int


def lines(wanted: Sequence[int], least: Sequence[int], room: int) -> list[Line]:
    """The lines of each row.

    ``wanted``: how wide the values of each column are; what is wider than ``least`` may be cut to
    that; ``room``: how wide a line may be. A column that is wider even so has a line for itself.
    """
    groups: list[list[int]] = [[]]
    used = 0
    for place, width in enumerate(map(min, wanted, least)):
        if groups[-1] and used + GAP + width > room:
            groups.append([])
        used = used + GAP + width if groups[-1] else width + (INDENT if len(groups) > 1 else 0)
        groups[-1].append(place)
    found = []
    for number, places in enumerate(groups):
        indent = INDENT if number else 0
        left = room - indent - GAP * (len(places) - 1)
        wide = _widths([wanted[at] for at in places], [least[at] for at in places], left)
        found.append(Line(places, wide, indent))
    return found


def _widths(wanted: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """As wide as the values are, but together no wider than ``room``, down to the least widths.

    The widest column gives way first, until another one is as wide.
    """
    found = [min(width, max(room, one)) for width, one in zip(wanted, least, strict=True)]
    for _ in range(sum(found) - room):
        able = [place for place in range(len(found)) if found[place] > least[place]]
        if not able:
            break
        found[max(able, key=found.__getitem__)] -= 1
    return found


def padded(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, with the cells of a column below each other."""
    columns: Iterable[tuple[str, ...]] = zip(*rows, strict=True)
    widths = [max(map(cells, column), default=0) for column in columns]
    return [
        (" " * GAP)
        .join(cell + " " * (width - cells(cell)) for cell, width in zip(row, widths, strict=True))
        .rstrip()
        for row in rows
    ]


def wrapped(rows: Sequence[Sequence[str]], room: int) -> list[str]:
    """As `padded`, within ``room`` characters: a long last cell goes on below its beginning.

    >>> wrapped([["argv", "list of text"], ["env", "text"]], 16)
    ['argv  list of', '      text', 'env   text']
    """
    heads = padded([[*row[:-1], "."] for row in rows])
    shown = []
    for head, row in zip(heads, rows, strict=True):
        before = head[:-1]
        width = max(_LAST_LEAST, room - cells(before))
        last = textwrap.wrap(row[-1], width, break_on_hyphens=False) or [""]
        shown.append((before + last[0]).rstrip())
        shown += [" " * cells(before) + line for line in last[1:]]
    return shown


_LAST_LEAST = 10
"""So narrow may the last cell become."""


def cells(text: str) -> int:
    """The width of ``text`` on a terminal, in characters."""
    if text.isascii():
        return len(text)
    return sum(_character_cells(one) for one in text)


def _character_cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
