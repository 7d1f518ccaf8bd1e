"""Draws what the rounds found: a point for each queue, with the extremes of its rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from .tables import number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from .catalogue import Peer
    from .results import Measured

PANELS = (
    ("jobs_per_second", "no-op jobs per second (more is better)"),
    ("idle_p50", "submit to finished, idle, p50 in ms (less is better)"),
    ("submit_p50", "submission, 1 client, p50 in ms (less is better)"),
    ("crowd_per_second", "submissions per second, 32 clients (more is better)"),
)
OURS, THEIRS = "#1f6f8b", "#80868b"


def draw(path: Path, peers: Sequence[Peer], measured: Sequence[Measured]) -> None:
    """Draw all panels into an SVG or PNG file, whose folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The same figures give the same file.
    with mpl.rc_context({"svg.hashsalt": "ganger", "svg.fonttype": "none"}):
        figure = Figure(figsize=(13, 8), layout="constrained")
        for axes, (name, title) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
            _panel(axes, name, title, peers=peers, measured=measured)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(
    axes: Axes, name: str, title: str, *, peers: Sequence[Peer], measured: Sequence[Measured]
) -> None:
    found = {one.name: one.spread(name) for one in measured}
    rows = [(peer, spread) for peer in reversed(peers) if (spread := found[peer.name])]
    axes.set_title(title, fontsize=10)
    if not rows:
        return
    # Points, because the length of a bar on a logarithmic axis says nothing.
    for place, (peer, spread) in enumerate(rows):
        below, above = spread.median - spread.lowest, spread.highest - spread.median
        colour = OURS if peer.library == "ganger" else THEIRS
        axes.errorbar(
            spread.median, place, xerr=[[below], [above]], fmt="o", color=colour, capsize=3
        )
        text = number(spread.median)
        axes.annotate(
            text,
            (spread.median, place),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set_yticks(range(len(rows)), [peer.title for peer, _ in rows])
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: number(value))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", alpha=0.3)
    axes.margins(x=0.1, y=0.08)
    axes.spines[["top", "right"]].set_visible(False)
