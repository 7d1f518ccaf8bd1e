"""Which waits follow which jobs, and in which order they are looked at."""

from __future__ import annotations

import pytest
from tests.actors.runtime.stage import Asker

from ganger.actors.ganeti import wait_list
from ganger.actors.ganeti.wait_list import Wait, WaitList
from ganger.storage import errors
from ganger.transport import messages
from ganger.transport.envelopes import Envelope


def wait(
    job_id: int = 1,
    number: int = 1,
    *,
    peer: bytes = b"p",
    ticket: int = 0,
    due: float = 10.0,
) -> Wait:
    request = messages.AwaitJobChange(job_id, ["status"], ticket=ticket)
    envelope = Envelope(request, Asker(), number, peer=peer)
    return Wait(envelope, request, ("status",), known=b"[1]", due=due)


def changed(of: WaitList) -> list[int]:
    """The numbers of the waits that are to be looked at, in order."""
    found = []
    while (one := of.next_changed()) is not None:
        found.append(one.envelope.number)
    return found


def overdue(of: WaitList, now: float) -> list[int]:
    of.expire(now)
    found = []
    while (one := of.next_overdue()) is not None:
        found.append(one.envelope.number)
        of.stop(one.key)
    return found


def test_only_waits_of_the_changed_job_are_looked_at_once() -> None:
    known = WaitList()
    for job_id, number in ((1, 1), (2, 2), (1, 3)):
        known.open(wait(job_id, number))
    assert not known.has_work
    known.changed(1)
    known.changed(1)
    known.changed(7)
    assert changed(known) == [1, 3]
    assert known.next_changed() is None
    assert len(known) == 3


def test_a_job_that_changes_again_passes_nobody_over() -> None:
    known = WaitList()
    for number in range(6):
        known.open(wait(1, number + 1))
    looked = []
    for _ in range(3):
        known.changed(1)
        for _ in range(2):
            one = known.next_changed()
            assert one is not None
            looked.append(one.envelope.number)
    assert looked == [1, 2, 3, 4, 5, 6]
    assert changed(known) == [1, 2, 3, 4]


def test_waits_that_end_while_their_line_is_looked_at_are_left_out() -> None:
    known = WaitList()
    for number in (1, 2, 3, 4):
        known.open(wait(1, number))
    known.changed(1)
    first = known.next_changed()
    assert first is not None
    known.stop(first.key)
    known.stop((b"p", 3))
    assert changed(known)[:2] == [2, 4]
    known.changed(1)
    known.stop((b"p", 2))
    known.stop((b"p", 4))
    assert changed(known) == []
    assert len(known) == 0


def test_a_repeated_request_replaces_the_first() -> None:
    known = WaitList()
    known.open(wait(1, 1))
    known.open(wait(2, 1))
    known.open(wait(3, 1, peer=b"q"))
    assert len(known) == 2
    known.changed(1)
    assert changed(known) == []
    known.changed(2)
    assert changed(known) == [1]


def test_a_ticket_tells_a_wait_whatever_the_number() -> None:
    known = WaitList()
    known.open(wait(1, 5, ticket=9))
    known.open(wait(1, 6, ticket=9))
    known.changed(1)
    assert changed(known) == [6]
    known.stop((b"p", 9))
    assert len(known) == 0


def test_the_waits_of_a_peer_that_is_gone_end_and_no_others() -> None:
    known = WaitList()
    for number in (1, 2):
        known.open(wait(1, number))
        known.open(wait(1, number + 2, peer=b"q"))
    known.stop_all_of(b"p")
    known.stop_all_of(b"p")
    known.changed(1)
    assert changed(known) == [3, 4]


def test_waits_are_overdue_in_the_order_of_their_times() -> None:
    known = WaitList()
    for number, due in ((1, 30.0), (2, 10.0), (3, 20.0)):
        known.open(wait(number, number, due=due))
    assert known.next_due == 10.0
    assert overdue(known, 9.9) == []
    assert overdue(known, 20.0) == [2, 3]
    assert known.next_due == 30.0
    known.stop((b"p", 1))
    assert overdue(known, 5.0) == []
    assert known.next_due is None


def test_a_wait_that_ends_after_its_time_is_up_is_not_answered() -> None:
    known = WaitList()
    known.open(wait(1, 1))
    known.expire(10.0)
    known.stop((b"p", 1))
    assert known.next_overdue() is None


def test_alarms_of_waits_that_are_over_do_not_pile_up() -> None:
    known = WaitList()
    for number in range(10_000):
        known.open(wait(1, number + 1))
        known.stop((b"p", number + 1))
    assert len(known._alarms) < 100
    assert known._by_job == {}
    assert known._by_peer == {}


def test_waits_are_bounded_and_one_may_always_be_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wait_list, "JOB_WAITS_MAX", 2)
    known = WaitList()
    known.open(wait(1, 1))
    known.open(wait(1, 2))
    with pytest.raises(errors.BusyError, match="2 requests wait for changes of jobs already"):
        known.open(wait(1, 3))
    known.open(wait(2, 2))
    assert len(known) == 2
