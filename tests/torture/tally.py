"""What a campaign of faults counts, and how its counts are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class Tally(msgspec.Struct, kw_only=True):
    """The counts of one campaign.

    ``injected``: faults that were really put in, each checked afterwards. ``wanted``: how many
    were asked for; a campaign that does not count faults says what it wants. ``survived``: those
    after which everything was as promised. ``lost``: acknowledged jobs that were gone;
    ``doubled``: opcodes that started twice; ``conflicting``: locks held in conflict. ``faults``
    names what went wrong beside these: one line each, with what repeats it.
    """

    injected: int = 0
    wanted: int = 0
    survived: int = 0
    lost: int = 0
    doubled: int = 0
    conflicting: int = 0
    faults: list[str] = []
    figures: dict[str, str] = {}
    """What was measured on the way, by name, ready to be printed."""

    def passed(self) -> None:
        """A fault was put in and everything was as promised."""
        self.injected += 1
        self.survived += 1

    def failed(self, text: str) -> None:
        """A fault was put in and something was not as promised."""
        self.injected += 1
        self.faults.append(text)

    def judge(self, text: str, *, lost: int = 0, doubled: int = 0, conflicting: int = 0) -> None:
        """A fault was put in, and this many promises were broken; ``text`` says what repeats it."""
        self.lost += lost
        self.doubled += doubled
        self.conflicting += conflicting
        if lost or doubled or conflicting:
            self.failed(f"{text}: {lost} lost, {doubled} doubled, {conflicting} in conflict")
        else:
            self.passed()

    @property
    def is_clean(self) -> bool:
        """Whether as many faults as wanted were put in, and every one of them was survived."""
        is_complete = 0 < self.injected >= self.wanted
        return is_complete and self.survived == self.injected and not self.faults


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table: a campaign, how it was run, and what came of it."""

    property: str
    name: str
    seed: int
    seconds: float
    tally: Tally


COLUMNS = (
    "property", "campaign", "faults injected", "survived", "lost", "doubled", "in conflict",
    "seed", "duration", "measured",
)  # fmt: skip


def table(lines: Sequence[Line]) -> str:
    """The lines as a table in Markdown."""
    rows = [f"| {' | '.join(COLUMNS)} |", f"|{'|'.join(['---'] * len(COLUMNS))}|"]
    for line in lines:
        tally = line.tally
        measured = "; ".join(f"{name} {value}" for name, value in tally.figures.items())
        rows.append(
            f"| {line.property} | {line.name} | {tally.injected} | {tally.survived} | {tally.lost} "
            f"| {tally.doubled} | {tally.conflicting} | {line.seed} | {line.seconds:.0f} s "
            f"| {measured} |"
        )
    return "\n".join(rows)


def merged(shown: str, lines: Sequence[Line], campaigns: Sequence[tuple[str, str]]) -> str:
    """The table ``shown`` with these lines, each in place of the row that its campaign had.

    ``campaigns``: property and name of all, in the order of the rows.
    """
    rows = {_campaign(row): row for row in shown.splitlines()}
    rows |= {_campaign(row): row for row in table(lines).splitlines()}
    head = table([]).splitlines()
    return "\n".join([*head, *(rows[one] for one in campaigns if one in rows)])


def _campaign(row: str) -> tuple[str, str]:
    """Which campaign's row it is."""
    cells = [cell.strip() for cell in row.split("|")]
    return cells[1], cells[2]
