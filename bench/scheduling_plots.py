"""Plays generated traces under all policies: draws the plot and writes the tables of a page.

    .venv/bin/python -m bench.scheduling_plots

The traces have fixed seeds, so the same code gives the same figures. It takes a minute or two.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from ganger.actors.lab import policies
from ganger.storage.lab import generating

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ganger.actors.lab.policies import Result

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "scheduling.md"
PLOT = ROOT / "docs" / "plots" / "scheduling.svg"
SEED = 1
JOBS = {"uncontended": 3_000, "contended": 3_000, "backlog": 3_000, "mixed": 3_000, "hot": 20_000}
NAMES = (*policies.POLICIES, policies.BOUND)
COLOURS = ("#80868b", "#b7a16a", "#d1893b", "#6aa3b7", "#1f6f8b")


class Panel(NamedTuple):
    """A figure of each result, with its title and the number that one unit of it has."""

    name: str
    title: str
    unit: float


PANELS = (
    Panel("makespan", "hours until all jobs have ended (the line: no order is faster)", 3_600),
    Panel("wait_mean", "mean wait in hours (the line: no order waits less)", 3_600),
    Panel("slots_waiting", "% of the time in run slots spent waiting for locks", 0.01),
)


def main() -> None:
    """Play, draw and write."""
    found = {}
    for kind, jobs in JOBS.items():
        trace = generating.generate(kind, jobs, random.Random(SEED))
        found[kind] = policies.compared(trace, NAMES, None, lambda *_: None)
        print(f"{kind}: played", flush=True)
    draw(found)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_tables(text, found), encoding="utf-8")
    print(f"{PLOT.relative_to(ROOT)} and {PAGE.relative_to(ROOT)} are written")


def draw(found: dict[str, list[Result]]) -> None:
    """Draw each panel with a group of bars for each kind of trace."""
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    # The same figures give the same file.
    with mpl.rc_context({"svg.hashsalt": "ganger", "svg.fonttype": "none"}):
        figure = Figure(figsize=(11, 11), layout="constrained")
        for axes, panel in zip(figure.subplots(len(PANELS), 1), PANELS, strict=True):
            _draw_panel(axes, panel, found)
        figure.savefig(PLOT, metadata={"Date": None})


def _draw_panel(axes: Axes, panel: Panel, found: dict[str, list[Result]]) -> None:
    axes.set_title(panel.title, fontsize=10)
    width = 0.8 / len(policies.POLICIES)
    for place, policy in enumerate(policies.POLICIES):
        values = [getattr(results[place], panel.name) / panel.unit for results in found.values()]
        spots = [group + place * width for group in range(len(found))]
        axes.bar(spots, values, width * 0.9, color=COLOURS[place], label=policy)
    for group, results in enumerate(found.values()):
        least = getattr(results[-1], panel.name)
        if least is not None:
            axes.hlines(least / panel.unit, group - width, group + 0.8, color="black")
    middle = 0.4 - width / 2
    axes.set_xticks([group + middle for group in range(len(found))], list(found))
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def with_tables(text: str, found: dict[str, list[Result]]) -> str:
    """The page with the table of each kind of trace between its marks."""
    for kind, results in found.items():
        before, start, rest = text.partition(f"<!-- {kind} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        assert end, f"the page has no place for {kind}"
        text = before + start + table(results) + end + after
    return text


def table(results: list[Result]) -> str:
    """The results as a table of the page."""
    lines = [
        "| policy | makespan | mean wait | p99 wait | longest wait | run slots waiting for locks |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.policy} | {_whole(one.makespan)} | {_whole(one.wait_mean)} |"
        f" {_whole(one.wait_p99)} | {_whole(one.wait_max)} |"
        f" {'' if one.slots_waiting is None else f'{one.slots_waiting:.0%}'} |"
        for one in results
    ]
    return "\n".join(lines) + "\n"


def _whole(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:,.1f}" if seconds < 10 else f"{seconds:,.0f}"  # noqa: PLR2004 - a digit more


if __name__ == "__main__":
    main()
