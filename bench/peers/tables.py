"""The tables that a page shows, as Markdown, and where they stand in it. Pure but for the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .catalogue import HUEY, REUSED, RQ, Peer
from .results import Measured, Reached, Spread, Target, ratio, reached

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BEGIN, END = "<!-- peers: begin -->\n", "<!-- peers: end -->"

TARGETS = (
    # Of the default mode: a fresh process for each job is measured, and has no target.
    Target(
        what="no-op jobs per second, reused processes, against RQ",
        figure="jobs_per_second",
        of=REUSED,
        against=RQ,
        at_least=14,
        on_the_way_to=25,
        is_most=False,
    ),
    Target(
        what="no-op jobs per second, reused processes, against Huey's processes",
        figure="jobs_per_second",
        of=REUSED,
        against=HUEY,
        at_least=0.5,
        on_the_way_to=1,
        is_most=False,
    ),
    Target(
        what="idle, submit to finished, p50, against RQ",
        figure="idle_p50",
        of=REUSED,
        against=RQ,
        at_least=0.27,
        on_the_way_to=0.2,
        is_most=True,
    ),
    Target(
        what="durable submission, 1 client, p50, against RQ",
        figure="submit_p50",
        of=REUSED,
        against=RQ,
        at_least=0.8,
        on_the_way_to=0.4,
        is_most=True,
    ),
    Target(
        what="durable submissions per second, 32 clients",
        figure="crowd_per_second",
        of=REUSED,
        against=None,
        at_least=8_000,
        on_the_way_to=20_000,
        is_most=False,
    ),
)

# The column, its figure, and whether it is compared with RQ.
COLUMNS = (
    ("no-op jobs per s", "jobs_per_second", True),
    ("idle p50, ms", "idle_p50", True),
    ("idle p99, ms", "idle_p99", False),
    ("submit p50, ms", "submit_p50", True),
    ("submit p99, ms", "submit_p99", False),
    ("submissions per s, 32 clients", "crowd_per_second", True),
    ("list, s", "listed_seconds", False),
)


def whole(peers: Sequence[Peer], measured: Sequence[Measured], run: str) -> str:
    """All tables of a run, which ``run`` describes in a line."""
    parts = (run, figures(peers, measured), targets(measured), setups(peers, measured))
    return "\n\n".join(parts)


def figures(peers: Sequence[Peer], measured: Sequence[Measured]) -> str:
    """One row for each peer: median (lowest - highest) and x RQ; what it lacks stands last."""
    found = {one.name: one for one in measured}
    base = found.get(RQ)
    heads = [name for name, _, _ in COLUMNS]
    rows = [
        [peer.title, *_cells(found[peer.name], base), _remarks(peer, found[peer.name])]
        for peer in peers
        if peer.name in found
    ]
    return _table(["queue", *heads, "does not promise"], rows)


def _cells(one: Measured, base: Measured | None) -> list[str]:
    if not one.rounds:
        return ["-"] * len(COLUMNS)
    cells = []
    for _, figure, is_compared in COLUMNS:
        spread = one.spread(figure)
        text = cell(spread)
        times = ratio(spread, base.spread(figure)) if base and is_compared else None
        cells.append(text if times is None else f"{text}, {number(times)} x")
    return cells


def _remarks(peer: Peer, one: Measured) -> str:
    parts = []
    if one.problem:
        parts.append(f"**{'not measured' if not one.rounds else 'incomplete'}:** {one.problem}")
    if peer.lacks:
        parts.append(peer.lacks)
    return "; ".join(parts).replace("|", "\\|")


def targets(measured: Sequence[Measured]) -> str:
    """One row for each target with what this run found."""
    return _table(
        ["target", "found", "wanted", "on the way to", ""],
        [_target_row(one) for one in reached(TARGETS, measured)],
    )


def _target_row(one: Reached) -> list[str]:
    unit = " x" if one.target.against else ""
    limit = "at most" if one.target.is_most else "at least"
    verdict = "not measured" if one.found is None else "met" if one.is_met else "**missed**"
    # A third digit tells 13.6 from the 14 that it misses.
    found = "-" if one.found is None else f"{precise(one.found)}{unit}"
    wanted = f"{limit} {number(one.target.at_least)}{unit}"
    return [one.target.what, found, wanted, f"{number(one.target.on_the_way_to)}{unit}", verdict]


def setups(peers: Sequence[Peer], measured: Sequence[Measured]) -> str:
    """One row for each peer: versions and configuration."""
    found = {one.name: one for one in measured}
    rows = [
        [peer.title, found[peer.name].versions or "-", peer.setup]
        for peer in peers
        if peer.name in found
    ]
    return _table(["queue", "versions", "configuration"], rows)


def cell(spread: Spread | None) -> str:
    """A median with its extremes, if there were several rounds.

    >>> cell(Spread(71.2, 69.0, 74.4, 3))
    '71 (69-74)'
    """
    if spread is None:
        return "-"
    if spread.rounds == 1:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.lowest)}-{number(spread.highest)})"


def number(value: float) -> str:
    """A number in two significant digits, or whole.

    >>> number(0.4567), number(4.5), number(71.2), number(12345.6)
    ('0.46', '4.5', '71', '12,346')
    """
    if value >= 10 or value == 0:  # noqa: PLR2004 - two digits
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 1 else f"{value:.2g}".removesuffix(".0")


def precise(value: float) -> str:
    """A number in three significant digits, or whole.

    >>> precise(0.4567), precise(13.61), precise(8012.3)
    ('0.457', '13.6', '8,012')
    """
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_tables(page: str, text: str) -> str:
    """The page with ``text`` between the two marks; ValueError if it does not have both."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no place for the tables: expected {BEGIN.strip()} and {END}")
    return f"{before}{BEGIN}{text}\n{END}{after}"


def fill_in(page: Path, text: str) -> None:
    """Put the tables into a page."""
    page.write_text(with_tables(page.read_text(encoding="utf-8"), text), encoding="utf-8")
