"""The kept answers of single jobs: never older than their request, and bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from ganger.rapi.job_bodies import JobBodies
from ganger.storage.access import rapi_settings

if TYPE_CHECKING:
    from collections.abc import Iterable


class World:
    """A daemon whose jobs have versions, and a body for each version."""

    def __init__(self) -> None:
        self.versions: dict[int, int] = {}
        self.asked: list[str] = []
        self.bodies = JobBodies(cast("Any", self), self._read)

    async def job_version(self, job_id: int) -> int | None:
        self.asked.append(f"version {job_id}")
        return self.versions.get(job_id)

    async def _read(self, job_id: int) -> bytes:
        self.asked.append(f"read {job_id}")
        return b"job %d version %d" % (job_id, self.versions.get(job_id, -1))

    def get(self, *ids: int) -> list[bytes]:
        async def all_of_them(wanted: Iterable[int]) -> list[bytes]:
            return [await self.bodies.body(one) for one in wanted]

        return asyncio.run(all_of_them(ids))


@pytest.fixture
def world() -> World:
    return World()


def test_a_job_that_is_asked_for_once_costs_one_question(world: World) -> None:
    world.versions = {1: 7}
    assert world.get(1) == [b"job 1 version 7"]
    assert world.asked == ["read 1"]


def test_the_third_time_only_the_version_is_asked_for(world: World) -> None:
    world.versions = {1: 7}
    assert world.get(1, 1, 1, 1) == [b"job 1 version 7"] * 4
    assert world.asked == ["read 1", "version 1", "read 1", "version 1", "version 1"]


def test_an_answer_is_never_older_than_its_request(world: World) -> None:
    world.versions = {1: 7}
    world.get(1, 1)
    world.versions = {1: 8}
    assert world.get(1, 1) == [b"job 1 version 8"] * 2
    world.versions = {}
    assert world.get(1) == [b"job 1 version -1"], "archived"


def test_a_job_that_changes_all_the_time_is_not_kept(world: World) -> None:
    world.versions = {1: 0}
    world.get(1, 1, 1)
    assert world.asked == ["read 1", "version 1", "read 1", "read 1"]


def test_a_large_answer_is_not_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapi_settings, "KEPT_BODY_BYTES_MAX", 3)
    world.versions = {1: 7}
    world.get(1, 1, 1, 1)
    assert world.asked.count("read 1") == 4


def test_only_so_many_jobs_are_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapi_settings, "KEPT_BODIES_MAX", 2)
    world.versions = dict.fromkeys(range(5), 7)
    world.get(1, 1, 2, 3)
    world.asked.clear()
    world.get(1)
    assert world.asked == ["read 1"], "it was forgotten"
