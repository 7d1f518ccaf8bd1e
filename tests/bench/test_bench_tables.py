"""The tables of `make bench-peers`, and their place in a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.peers import catalogue, tables
from bench.peers.results import FIGURES, Measured, Round

PAGE = f"before\n{tables.BEGIN}old\n{tables.END}\nafter\n"


def rounds(*jobs_per_second: float) -> list[Round]:
    return [Round(jobs_per_second=value) for value in jobs_per_second]


def row(text: str, title: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {title} |")]
    return [part.strip() for part in line.strip("|").split(" | ")]


def test_a_row_has_medians_extremes_and_ratios() -> None:
    found = [
        Measured("ganger-fresh", rounds=rounds(690, 700, 710)),
        Measured("rq", rounds=rounds(100, 90, 110)),
    ]
    text = tables.figures(catalogue.PEERS, found)
    assert row(text, "Ganger, fresh processes")[1:3] == ["700 (690-710), 7 x", "-"]
    assert row(text, "RQ")[1] == "100 (90-110), 1 x"


def test_without_rq_there_are_figures_and_no_ratios() -> None:
    text = tables.figures(catalogue.PEERS, [Measured("celery", rounds=rounds(300))])
    assert row(text, "Celery, prefork")[1] == "300"


@pytest.mark.parametrize("peer", catalogue.PEERS, ids=lambda peer: peer.name)
def test_what_a_peer_does_not_promise_stands_in_its_row(peer: catalogue.Peer) -> None:
    text = tables.figures([peer], [Measured(peer.name, rounds=rounds(1))])
    assert row(text, peer.title)[-1] == peer.lacks


def test_a_peer_that_was_not_measured_has_a_row_with_the_reason() -> None:
    found = [Measured("rq", problem="redis-server is not installed")]
    cells = row(tables.figures(catalogue.PEERS, found), "RQ")
    assert cells[1:-1] == ["-"] * len(tables.COLUMNS)
    assert cells[-1].startswith("**not measured:** redis-server is not installed; ")


def test_a_peer_that_failed_later_keeps_its_figures_and_says_so() -> None:
    found = [Measured("rq", rounds=rounds(70), problem="crowd: a | b")]
    text = tables.figures(catalogue.PEERS, found)
    assert "| 70, 1 x |" in text
    assert "**incomplete:** crowd: a \\| b; " in text


def test_every_target_has_a_row_that_says_whether_it_is_met() -> None:
    found = [
        Measured("ganger-reused", rounds=rounds(1_300)),
        Measured("rq", rounds=rounds(100)),
    ]
    text = tables.targets(found)
    assert len(text.splitlines()) == 2 + len(tables.TARGETS)
    verdicts = [line.split(" | ")[-1].strip(" |") for line in text.splitlines()[2:]]
    assert verdicts == ["**missed**", *["not measured"] * 4]


def test_a_target_that_is_just_missed_does_not_look_reached() -> None:
    found = [Measured("ganger-reused", rounds=rounds(1_360)), Measured("rq", rounds=rounds(100))]
    line = tables.targets(found).splitlines()[2]
    assert line.endswith("| 13.6 x | at least 14 x | 25 x | **missed** |")


def test_targets_and_columns_name_figures_and_peers_that_exist() -> None:
    assert {target.figure for target in tables.TARGETS} <= set(FIGURES)
    assert {figure for _, figure, _ in tables.COLUMNS} <= set(FIGURES)
    named = {target.of for target in tables.TARGETS} | {
        target.against for target in tables.TARGETS if target.against
    }
    assert named <= set(catalogue.NAMES)


def test_the_tables_take_the_place_between_the_marks() -> None:
    wanted = f"before\n{tables.BEGIN}new\n{tables.END}\nafter\n"
    assert tables.with_tables(PAGE, "new") == wanted
    assert tables.with_tables(wanted, "new") == wanted


@pytest.mark.parametrize("page", ["", tables.BEGIN, tables.END, f"{tables.END}{tables.BEGIN}"])
def test_a_page_without_a_place_for_the_tables_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="no place for the tables"):
        tables.with_tables(page, "new")


def test_the_page_of_figures_has_a_place_for_the_tables() -> None:
    page = Path(__file__).parents[2] / "docs" / "performance.md"
    tables.with_tables(page.read_text(encoding="utf-8"), "new")
