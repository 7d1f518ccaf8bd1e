"""Which ended jobs depend on another one: found in their files, each of which is read once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from ganger.rapi.chains import Chains
from ganger.storage.access import rapi_settings


class Daemon:
    """Knows jobs by id, with the opcodes of each; None: it is no longer there."""

    def __init__(self, jobs: dict[int, Any]) -> None:
        self.jobs = jobs
        self.read: list[list[int]] = []

    async def query_json(self, _what: str, _fields: Any, wanted: Any) -> tuple[None, bytes]:
        ids = [one for _, _, one in wanted[1:]]
        self.read.append(ids)
        return None, msgspec.json.encode([[[0, one], [0, self.jobs[one]]] for one in ids])


def after(*ids: int) -> list[dict[str, Any]]:
    return [{"OP_ID": "OP_A", "depends": [[one, ["success"]] for one in ids]}]


def found(chains: Chains, daemon: Daemon, job_id: int) -> list[int]:
    ended = [*daemon.jobs]
    return asyncio.run(chains.dependents(job_id, ended, cast("Any", daemon)))


def test_each_job_is_read_once() -> None:
    jobs = {4: after(), 3: after(1, 2), 5: after(3), 6: [{"OP_ID": "OP_A"}, *after(2)], 7: None}
    daemon = Daemon(jobs)
    chains = Chains()
    assert found(chains, daemon, 2) == [3, 6]
    assert found(chains, daemon, 3) == [5]
    assert found(chains, daemon, 1) == [3]
    assert daemon.read == [[3, 4, 5, 6, 7]]


def test_of_very_many_later_jobs_the_next_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapi_settings, "CHAINED_MAX", 3)
    daemon = Daemon({one: after(1) for one in range(1, 9)})
    assert found(Chains(), daemon, 1) == [2, 3, 4]
    assert daemon.read == [[2, 3, 4]]


def test_jobs_that_left_the_lists_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapi_settings, "ENDED_KEPT", 2)
    chains = Chains()
    for first in (2, 5, 8):
        daemon = Daemon({one: after(1) for one in range(first, first + 3)})
        assert found(chains, daemon, 1) == [first, first + 1, first + 2]
    assert len(chains._depends) <= 4
