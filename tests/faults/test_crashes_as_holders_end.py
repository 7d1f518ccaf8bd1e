"""A component is replaced while a job that holds locks ends: no run slot is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.harness import Daemon
from tests.system.gates import Gate, end, shell, until_running

COMPONENTS = ("lock_manager", "scheduler", "job_queue", "executor", "filter_evaluator")
ON_NODE = {"locks": {"node": {"exclusive": ["n1"]}}}
SLOTS = 2


@pytest.mark.parametrize("placement", ["together", "apart"])
def test_a_restart_while_a_job_ends_loses_no_slot(tmp_path: Path, placement: str) -> None:
    with (
        Daemon(tmp_path, placement=placement, holds_back=True) as daemon,
        Gate(tmp_path) as gate,
        daemon.client() as client,
    ):
        client.limits(running=SLOTS)
        for component in COMPONENTS:
            holders = [
                client.submit(gate.job(locks={"node": {"exclusive": [name]}}))
                for name in ("n1", "n2")
            ]
            until_running(client, *holders)
            waiting = [client.submit(shell("true") | ON_NODE) for _ in range(2)]
            gate.let_through(SLOTS)
            daemon.crash(component)
            end(client, *holders, *waiting)
            # As many jobs as before run at a time.
            both = [client.submit(gate.job()) for _ in range(SLOTS)]
            until_running(client, *both)
            gate.let_through(SLOTS)
            end(client, *both)


def test_a_lock_manager_that_is_killed_while_a_job_ends_loses_no_slot(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path, placement="apart", holds_back=True) as daemon,
        Gate(tmp_path) as gate,
        daemon.client() as client,
    ):
        client.limits(running=1)
        holder = client.submit(gate.job(**ON_NODE))
        until_running(client, holder)
        waiting = client.submit(shell("true") | ON_NODE)
        gate.let_through()
        daemon.kill_authority()
        end(client, holder, waiting)
        end(client, client.submit(shell("true")))
