"""The share of every campaign that is run with the tests; `make torture` runs them in full."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests import seeds
from tests.torture.campaigns import CAMPAIGNS, Campaign

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("campaign", CAMPAIGNS, ids=lambda found: f"{found.property} {found.name}")
def test_every_fault_of_the_share_is_survived(campaign: Campaign, tmp_path: Path) -> None:
    if campaign.needs and shutil.which(campaign.needs) is None:
        pytest.skip(f"{campaign.property} {campaign.name} needs {campaign.needs}")
    seed = seeds.seed()
    tally = campaign.run(campaign.share, seed, tmp_path)
    summary = f"{tally.survived} of {tally.injected} survived, {tally.wanted} wanted, seed {seed}"
    assert tally.is_clean, "\n".join([*tally.faults[:20], summary])
