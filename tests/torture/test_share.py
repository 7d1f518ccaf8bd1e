"""The share of every campaign that is run with the tests; `make torture` runs them in full."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.torture.campaigns import CAMPAIGNS, Campaign

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(300)
@pytest.mark.parametrize("campaign", CAMPAIGNS, ids=lambda found: f"{found.property} {found.name}")
def test_every_fault_of_the_share_is_survived(campaign: Campaign, tmp_path: Path) -> None:
    if campaign.needs and shutil.which(campaign.needs) is None:
        pytest.skip(f"{campaign.property} {campaign.name} needs {campaign.needs}")
    seed = int(os.environ.get("GANGER_SEED", "0")) or int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}: repeat with GANGER_SEED={seed}")
    tally = campaign.load()(campaign.share, seed, tmp_path)
    assert tally.is_clean, "\n".join([*tally.faults[:20], f"of {tally.injected}, seed {seed}"])
