"""What a client says while its daemon is gone."""

from __future__ import annotations

import pytest
from tests.transport.client.talk import HEARTBEAT, TIMEOUT, Talk, failed

from ganger.transport import messages
from ganger.transport.client.reachability import (
    ANSWERS,
    BACK,
    GONE,
    SILENT,
    TOLD_AFTER_SECONDS,
    Outage,
)
from ganger.transport.zmq.connection_event import ConnectionEvent


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def talk(reports: list[str]) -> Talk:
    return Talk(on_outage=reports.append)


def wait(talk: Talk) -> None:
    """Let the time pass that the session itself says it wants to wait."""
    seconds = talk.session.wait_seconds(talk.now)
    assert seconds is not None
    talk.turn(seconds)


def test_an_outage_and_its_end_are_reported_to_waiting_calls(
    talk: Talk, reports: list[str]
) -> None:
    talk.watch(1)
    lost_at = talk.now
    talk.link(ConnectionEvent.LOST)
    talk.turn()
    assert reports == []
    wait(talk)
    assert reports == [GONE]
    assert talk.now == lost_at + TOLD_AFTER_SECONDS
    # Attempts to connect that come to nothing are no news.
    talk.link(ConnectionEvent.LOST)
    wait(talk)
    talk.link(ConnectionEvent.REACHED, ConnectionEvent.MADE)
    talk.turn(TOLD_AFTER_SECONDS)
    assert reports == [GONE, BACK]
    # The next outage is a short one, which is not reported.
    talk.reconnect()
    talk.turn(TOLD_AFTER_SECONDS)
    assert reports == [GONE, BACK]


def test_a_restart_that_takes_no_time_is_not_reported(talk: Talk, reports: list[str]) -> None:
    talk.watch(1)
    for _ in range(2):
        talk.reconnect()
        talk.turn(TOLD_AFTER_SECONDS)
    assert reports == []


def test_an_outage_without_a_waiting_call_is_not_reported(talk: Talk, reports: list[str]) -> None:
    talk.link(ConnectionEvent.LOST)
    talk.turn(10 * TOLD_AFTER_SECONDS)
    assert reports == []
    call = talk.call(messages.ReadInfo())
    talk.turn(TOLD_AFTER_SECONDS * 0.9)
    assert reports == []
    talk.turn(TOLD_AFTER_SECONDS * 0.2)
    assert reports == [GONE]
    talk.turn(TIMEOUT)
    assert failed(call) == "DaemonUnreachableError"
    assert reports == [GONE]


def test_a_daemon_that_was_never_there_has_not_gone_away(reports: list[str]) -> None:
    talk = Talk(connected=False, on_outage=reports.append)
    call = talk.call(messages.ReadInfo())
    talk.turn(TIMEOUT)
    assert failed(call) == "DaemonUnreachableError"
    assert reports == []


def test_without_a_listener_no_outage_is_awaited() -> None:
    outage = Outage(None)
    outage.begin(1.0)
    assert outage.look(100.0) == float("inf")


def test_a_daemon_that_accepts_no_connection_is_no_outage(talk: Talk, reports: list[str]) -> None:
    talk.watch(1)
    talk.link(ConnectionEvent.LOST, ConnectionEvent.REACHED, ConnectionEvent.TURNED_AWAY)
    talk.turn(10 * TOLD_AFTER_SECONDS)
    talk.link(ConnectionEvent.LOST, ConnectionEvent.REACHED, ConnectionEvent.REFUSED)
    talk.call(messages.ReadInfo())
    talk.turn(10 * TOLD_AFTER_SECONDS)
    assert reports == []


def test_a_daemon_that_is_found_elsewhere_has_a_moment_to_answer(
    talk: Talk, reports: list[str]
) -> None:
    talk.link(ConnectionEvent.LOST)
    talk.turn(10 * TOLD_AFTER_SECONDS)
    talk.session.opened(talk.now)
    talk.call(messages.ReadInfo())
    talk.link(ConnectionEvent.REACHED, ConnectionEvent.MADE)
    talk.turn(TOLD_AFTER_SECONDS)
    assert reports == []


def test_an_outage_callback_that_fails_loses_no_watch() -> None:
    def refuse(text: str) -> None:
        raise OSError(text)

    talk = Talk(on_outage=refuse)
    watch = talk.watch(1)
    talk.link(ConnectionEvent.LOST)
    with pytest.raises(OSError, match=GONE):
        talk.turn(TOLD_AFTER_SECONDS)
    assert talk.session.wait_seconds(talk.now) is not None
    with pytest.raises(OSError, match=BACK):
        talk.link(ConnectionEvent.REACHED, ConnectionEvent.MADE)
    talk.is_open = True
    (again,) = talk.turn()
    assert again.number == watch.number
    assert isinstance(again.message, messages.WatchJobs)


def test_a_watch_tells_once_that_the_daemon_is_silent_and_that_it_answers_again(
    talk: Talk, reports: list[str]
) -> None:
    talk.watch(1)
    talk.turn(HEARTBEAT)
    assert reports == []
    talk.turn(TIMEOUT)
    talk.turn(TIMEOUT)
    assert reports == [SILENT]
    talk.reply(messages.JobRows(rows=[]))
    assert reports == [SILENT, ANSWERS]
    talk.turn(HEARTBEAT)
    talk.reply(messages.JobRows(rows=[]))
    assert reports == [SILENT, ANSWERS]
