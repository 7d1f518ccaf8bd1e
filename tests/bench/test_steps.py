"""The steps measure any side in the same way, and refuse one that loses jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.peers import steps
from bench.peers.side import Client, until

if TYPE_CHECKING:
    from collections.abc import Sequence


class FakeQueue(Client):
    """Remembers what was submitted and waited for; its list forgets ``lost`` jobs."""

    def __init__(self, lost: int = 0) -> None:
        self.submitted: list[bool] = []
        self.waited: list[object] = []
        self._lost = lost

    def submit(self, *, is_held: bool = False) -> object:
        self.submitted.append(is_held)
        return len(self.submitted)

    def wait_all(self, tickets: Sequence[object]) -> None:
        self.waited.extend(tickets)

    def list_held(self) -> int:
        return max(0, self.submitted.count(True) - self._lost)


class Unlisted(FakeQueue):
    """A queue that cannot list its jobs."""

    def list_held(self) -> int:
        return Client.list_held(self)


def test_submissions_are_of_held_jobs() -> None:
    client = FakeQueue()
    assert len(steps.submissions(client, 5)) == 5
    assert client.submitted == [True] * 5
    assert client.waited == []


def test_throughput_waits_for_every_job() -> None:
    client = FakeQueue()
    assert steps.throughput(client, 7) > 0
    assert client.waited == [1, 2, 3, 4, 5, 6, 7]
    assert True not in client.submitted


def test_idle_jobs_are_submitted_and_awaited_one_by_one() -> None:
    client = FakeQueue()
    assert len(steps.idle(client, 3, 0)) == 3
    assert client.waited == [1, 2, 3]


def test_a_list_has_the_stored_jobs_besides_those_from_before() -> None:
    client = FakeQueue()
    client.submit(is_held=True)
    found = steps.listing(client, steps.BATCH + 1)
    assert found is not None
    assert client.list_held() == steps.BATCH + 2


def test_a_list_that_lacks_jobs_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="the list has 8 jobs instead of 10"):
        steps.listing(FakeQueue(lost=2), 10)


def test_a_queue_without_list_stores_nothing_for_it() -> None:
    client = Unlisted()
    assert steps.listing(client, 10) is None
    assert client.submitted == []


def test_what_does_not_come_is_named_after_the_deadline() -> None:
    with pytest.raises(TimeoutError, match="Redis answers within 0 s"):
        until(lambda: False, "Redis answers", seconds=0, pause=0)
