"""What ``ganger queue simulate`` tells of a rule that is only proposed."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli import stand_in

from ganger.cli.main import ganger
from ganger.storage.filters.rules import PROPOSED_UUID
from ganger.transport.client import filter_requests
from ganger.transport.messages import FilterRow, Simulated, WaitingJob

UUID = "00000000-0000-4000-8000-000000000001"
FRIDAY = "00000000-0000-4000-8000-000000000005"


class SimulatingDaemon:
    """Stands for the client of a daemon with jobs that the proposed rule is about."""

    def simulate(self, *, rule: dict[str, Any], **_: object) -> Simulated:
        uuid = filter_requests.proposed_filter(rule).uuid
        return Simulated(
            start=[],
            ended=[(4, f"rejected by filter rule {uuid}")],
            more_ended=7,
            counts={"rule": 2},
            waiting=[
                WaitingJob(id=5, kind="rule", text=f"paused by {uuid}"),
                WaitingJob(id=6, kind="rule", text=f"paused by {UUID}"),
                WaitingJob(id=7, kind="limit", text=f"rule:{FRIDAY}: 1 runs already"),
            ],
        )

    def filters(self) -> list[FilterRow]:
        return [_rule(UUID, ""), _rule(FRIDAY, "friday")]


def _rule(uuid: str, name: str) -> FilterRow:
    return FilterRow(
        uuid=uuid,
        name=name,
        watermark=0,
        priority=0,
        predicates=[],
        action="PAUSE",
        reason_trail=[],
    )


@pytest.fixture(autouse=True)
def client_of_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.use(monkeypatch, SimulatingDaemon())


def simulated(*words: str) -> str:
    done = CliRunner().invoke(ganger, ["queue", "simulate", *words], catch_exceptions=False)
    return done.output


def test_a_rule_of_a_simulation_is_called_proposed() -> None:
    assert simulated("--rule", "action: PAUSE").splitlines()[1:] == [
        "Would end: 4  rejected by the proposed rule",
        "and 7 more would end",
        "Would wait: 5  paused by the proposed rule",
        f"Would wait: 6  paused by {UUID}",
        "Would wait: 7  the rule 'friday': 1 runs already",
    ]
    assert f"paused by {PROPOSED_UUID}" in simulated("--rule", "action: PAUSE", "-o", "json")


def test_a_simulated_rule_keeps_the_uuid_that_it_was_given() -> None:
    lines = simulated("--rule", f"{{action: PAUSE, uuid: {UUID}}}").splitlines()
    assert lines[1] == f"Would end: 4  rejected by filter rule {UUID}"


def test_the_help_of_a_simulated_rule_has_all_its_keys() -> None:
    shown = simulated("--help")
    assert "--rule JSON|YAML|@FILE" in shown
    assert all(key in shown for key in filter_requests.RULE_KEYS)
