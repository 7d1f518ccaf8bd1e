"""A component that hangs is noticed and replaced; jobs go on, and callers get an answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import LOOK_SECONDS, Daemon, Witnesses

from ganger import JobStatus
from ganger.actors.supervision.placement import COMPONENTS
from ganger.actors.supervision.supervising import policy_of
from ganger.storage import errors
from ganger.transport import frames, messages
from ganger.transport.zmq.connection_event import ConnectionEvent
from ganger.transport.zmq.dealer import Dealer

if TYPE_CHECKING:
    from pathlib import Path

    from ganger.transport.messages import DaemonInfo

JOBS = 12
PARTS = [*(component.name for component in COMPONENTS), "supervisor"]


def replaced(daemon: Daemon, component: str, before: DaemonInfo) -> DaemonInfo:
    """What the daemon says of itself once the component, or all of it, was replaced."""
    with daemon.client() as client:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                info = client.info(timeout=10)
            except errors.TryAgainError:
                continue
            restarts = {part.name: part.restarts for part in info.components}
            if info.started > before.started or restarts.get(component) == 1:
                return info
            time.sleep(LOOK_SECONDS)
    raise AssertionError(f"{component} was not replaced")


def await_log(daemon: Daemon, *words: str) -> None:
    """Wait until the log, which a thread of its own writes, has these words."""
    deadline = time.monotonic() + 30
    while not all(one in daemon.places.log.read_text() for one in words):
        assert time.monotonic() < deadline, daemon.places.log.read_text()
        time.sleep(LOOK_SECONDS)


@pytest.mark.parametrize("component", PARTS)
def test_a_component_that_hangs_is_replaced_and_nothing_is_lost_or_doubled(
    tmp_path: Path, component: str
) -> None:
    witnesses = Witnesses(tmp_path, JOBS)
    with Daemon(tmp_path, "--hung-after", "2") as daemon:
        with daemon.client() as client:
            ids = client.submit_many(witnesses.jobs())
            client.wait(ids[5], timeout=30)
            before = client.info()
        daemon.crash(component, "hang")
        with daemon.client() as client:
            ended = client.wait(*ids, timeout=60)
            assert {job.status for job in ended} == {JobStatus.SUCCESS}
            assert set(witnesses.counts().values()) == {1}
            assert client.locks() == []
        after = replaced(daemon, component, before)
        if policy_of(component).when_hung == "replace":
            assert after.started == before.started
        else:
            # The daemon began anew, in the same process.
            assert after.started > before.started
            assert after.pid == before.pid
        # It says where: the line of the component's code that does not return.
        await_log(daemon, "component hangs", "threading.Event().wait()")


def test_a_request_to_a_component_that_hangs_is_refused_in_time(tmp_path: Path) -> None:
    with Daemon(tmp_path, "--hung-after", "2") as daemon, daemon.client() as client:
        # It knows that there is a daemon, however long that takes to begin anew.
        client.info()
        # Its neighbours do not hang with it: it has a dispatcher of its own.
        daemon.crash("config_store", "hang")
        dealer = Dealer(f"ipc://{daemon.places.socket}")
        try:
            request = frames.encode(messages.ReadLimits(), 7)
            while not dealer.send(request):
                dealer.receive(1.0)
            received = dealer.receive(20.0)
            while received in (ConnectionEvent.REACHED, ConnectionEvent.MADE):
                received = dealer.receive(20.0)
        finally:
            dealer.close()
        if received is not ConnectionEvent.LOST:
            # On a busy machine, the new daemon's start may be noticed before the words are read.
            assert isinstance(received, bytes), "no answer"
            frame = frames.decode(received, messages.ClientReply)
            assert frame.number == 7
            assert isinstance(frame.message, messages.Failure)
            assert frame.message.error == "ComponentRestartedError"
            assert frame.message.text == "component config_store hung and is replaced"
        # A client asks again by itself when the answer was such an error.
        assert client.locks(timeout=30) == []
