"""The counts of a campaign: when it may be called clean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests import seeds
from tests.torture.campaigns import Campaign
from tests.torture.tally import Line, Tally, merged, table

if TYPE_CHECKING:
    from pathlib import Path


def test_a_campaign_that_put_in_fewer_faults_than_wanted_is_not_clean() -> None:
    tally = Tally(wanted=3)
    for _ in range(2):
        tally.passed()
        assert not tally.is_clean
    tally.passed()
    assert tally.is_clean


def test_a_campaign_that_put_in_nothing_is_not_clean() -> None:
    assert not Tally().is_clean


def test_a_fault_that_is_not_counted_counts_too() -> None:
    assert not Tally(injected=2, survived=2, wanted=2, faults=["it failed"]).is_clean


def test_a_campaign_of_a_given_count_must_reach_that_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(count: int, seed: int, folder: Path) -> Tally:
        assert (count, seed, folder) == (7, 1, tmp_path)
        return Tally(injected=6, survived=6)

    monkeypatch.setattr(Campaign, "load", lambda _: run)
    campaign = Campaign(property="D0", name="stand in", module="none", full=9, share=7)
    tally = campaign.run(7, 1, tmp_path)
    assert (tally.wanted, tally.is_clean) == (7, False)


def test_without_a_given_seed_each_run_draws_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seeds.VARIABLE, raising=False)
    assert seeds.seed() == seeds.seed() == seeds.SEED
    assert not seeds.explores()
    monkeypatch.setenv(seeds.VARIABLE, "1234")
    assert seeds.seed() == 1234
    monkeypatch.setenv(seeds.VARIABLE, "random")
    assert seeds.explores()
    assert len({seeds.seed() for _ in range(4)}) > 1


def test_a_page_keeps_the_rows_of_campaigns_that_were_not_run() -> None:
    def line(name: str, seed: int) -> Line:
        return Line(property="D1", name=name, seed=seed, seconds=1.0, tally=Tally())

    names = [("D1", name) for name in ("one", "two", "three", "four")]
    shown = table([line("one", 1), line("three", 1), line("gone", 1)]) + "\n"
    after = merged(shown, [line("three", 2), line("two", 2)], names)
    assert after == table([line("one", 1), line("two", 2), line("three", 2)])
