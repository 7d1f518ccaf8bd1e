"""Pending jobs stand in the rows of the locks that they will take."""

from __future__ import annotations

from ganger.storage.prediction.lock_types import (
    ALL_EXCLUSIVE,
    LockForecast,
    exclusive,
    forecast_of,
    shared,
)
from ganger.transport.client.wanted_locks import with_wanted
from ganger.transport.messages import LockRow, PlanRead

HELD = LockRow(name="node/n2", mode="exclusive", owners=["1"], pending=[("shared", ["4"])])


def plan(*forecasts: LockForecast | None) -> PlanRead:
    """Of pending jobs from 5 on, which begin with these locks."""
    ids = range(5, 5 + len(forecasts))
    known = [one for one in forecasts if one is not None]
    sets = {
        job_id: known.index(one)
        for job_id, one in zip(ids, forecasts, strict=True)
        if one is not None
    }
    return PlanRead(
        now=0.0,
        slots=1,
        works=[None],
        running=[(1, 0, 1.0)],
        pending=[(job_id, 0, [], False) for job_id in ids],
        count=len(forecasts),
        locks=[*known, forecast_of(node=exclusive(["n2"]))],
        lock_sets={**sets, 1: len(known)},
    )


def wanted(*forecasts: LockForecast | None) -> dict[str, list[tuple[str, list[str]]]]:
    return {row.name: row.wanted for row in with_wanted([HELD], plan(*forecasts))}


def test_pending_jobs_stand_under_their_locks_by_mode() -> None:
    one = forecast_of(node=exclusive(["n2", "n10"]))
    other = forecast_of(node=shared(["n2"]))
    assert wanted(one, other, one, None) == {
        "node/n2": [("exclusive", ["5", "7"]), ("shared", ["6"])],
        "node/n10": [("exclusive", ["5", "7"])],
    }


def test_the_whole_level_is_its_lock_set() -> None:
    assert wanted(forecast_of(node_res=ALL_EXCLUSIVE)) == {
        "node/n2": [],
        "node-res/[lockset]": [("exclusive", ["5"])],
    }


def test_the_big_lock_is_named_if_a_job_wants_it_alone() -> None:
    alone = LockForecast(big_lock="exclusive")
    assert wanted(alone)["cluster/BGL"] == [("exclusive", ["5"])]
    assert "cluster/BGL" not in wanted(forecast_of(node=shared(["n1"])))


def test_who_holds_a_lock_and_waits_for_it_stays() -> None:
    [row] = with_wanted([HELD], plan())
    assert row == HELD
