"""The watchdog on a stage: what it looks at, and to whom it reports."""

from __future__ import annotations

import socket
from unittest import mock

import msgspec
import pytest
from tests.actors.runtime.stage import Stage

from ganger.actors.scheduling.scheduler import Scheduler
from ganger.actors.supervision import watchdog as watchdog_file
from ganger.actors.supervision.supervising import Sight
from ganger.actors.supervision.supervisor import Shutdown, Supervisor
from ganger.actors.supervision.watchdog import Watchdog
from ganger.storage import errors, settings
from ganger.transport import messages
from ganger.transport.envelopes import Envelope

LOOKS = 3


@pytest.fixture
def shutdown() -> Shutdown:
    return Shutdown()


@pytest.fixture
def keeper() -> mock.Mock:
    return mock.Mock()


@pytest.fixture
def watchdog(stage: Stage, shutdown: Shutdown, keeper: mock.Mock) -> Watchdog:
    return Watchdog(stage.host, shutdown, keeper, LOOKS * settings.WATCHDOG_SECONDS)


def test_the_daemon_of_a_node_that_rests_is_looked_at_less_often(
    stage: Stage, keeper: mock.Mock, shutdown: Shutdown, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = Watchdog(stage.host, shutdown, keeper, 60.0)
    node = Watchdog(msgspec.structs.replace(stage.host, is_node=True), shutdown, keeper, 60.0)
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return len(waited) % 3 == 0

    monkeypatch.setattr(shutdown.is_over, "wait", wait)
    monkeypatch.setattr(watchdog_file, "_sight", lambda _: Sight(1, is_booting=False))
    master.watch()
    node.watch()
    stage.host.actors["job_queue"] = mock.Mock()
    node.watch()
    often, seldom = settings.WATCHDOG_SECONDS, settings.WATCHDOG_REST_SECONDS
    assert waited == [often, often, often, seldom, seldom, seldom, seldom, often, often]


def test_the_listener_hears_of_a_deleted_or_replaced_socket(
    stage: Stage, watchdog: Watchdog
) -> None:
    watchdog.look_at_local_sockets()
    assert stage.sent == []
    stage.host.actors["wire_listener"] = mock.Mock()
    watchdog.look_at_local_sockets()
    assert stage.sent == [("wire_listener", messages.LocalSocketMissing())]
    stage.places.socket.parent.mkdir(exist_ok=True)
    stage.places.socket.touch()
    watchdog.look_at_local_sockets()
    assert len(stage.sent) == 2
    stage.places.socket.unlink()
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(stage.places.socket))
        watchdog.look_at_local_sockets()
    assert len(stage.sent) == 2


def test_a_listener_hears_seldom_of_a_socket_that_another_program_has_put_there(
    stage: Stage, watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog_file, "_LOOKS_AT_OTHERS", 3)
    path = stage.places.run / "luxi"
    state = messages.SocketState(protocol="LUXI", path=str(path))
    stage.host.listener_states["luxi_listener"] = state
    path.parent.mkdir(exist_ok=True)
    stage.host.actors["luxi_listener"] = mock.Mock()

    def look(times: int) -> int:
        before = len(stage.sent)
        for _ in range(times):
            watchdog.look_at_local_sockets()
        return len(stage.sent) - before

    with socket.socket(socket.AF_UNIX) as own, socket.socket(socket.AF_UNIX) as other:
        own.bind(str(path))
        stage.host.local_sockets["luxi_listener"] = path.stat().st_dev, path.stat().st_ino
        assert look(5) == 0
        path.unlink()
        assert look(2) == 2
        other.bind(str(path))
        assert [look(1) for _ in range(7)] == [1, 0, 0, 1, 0, 0, 1]
        stage.host.local_sockets["luxi_listener"] = path.stat().st_dev, path.stat().st_ino
        assert look(5) == 0


def test_without_its_directory_the_daemon_is_abandoned(
    watchdog: Watchdog, shutdown: Shutdown, keeper: mock.Mock
) -> None:
    watchdog.look_at_directory()
    assert not shutdown.is_over.is_set()
    keeper.keep.side_effect = errors.DirectoryLostError("gone")
    watchdog.look_at_directory()
    assert shutdown.is_over.is_set()
    assert (shutdown.is_abandoned, str(shutdown.error)) == (True, "gone")


def test_a_component_that_hangs_is_reported_once_and_one_that_works_never(
    stage: Stage, watchdog: Watchdog
) -> None:
    for name in ("scheduler", "job_queue", "config_store"):
        stage.host.actors[name] = stage.make(Scheduler, incarnation=2).actor
        stage.host.actors[name].heartbeat.handling = messages.Done()
    stage.host.actors["config_store"].heartbeat.is_abandoned = True
    for _ in range(2 * LOOKS):
        watchdog.look()
        stage.host.actors["job_queue"].heartbeat.handled += 1
    [(name, hung)] = stage.sent
    assert isinstance(hung, messages.ComponentHung)
    assert (name, hung.component, hung.incarnation) == ("supervisor", "scheduler", 2)


def test_if_the_supervisor_hangs_the_daemon_begins_anew(
    stage: Stage, watchdog: Watchdog, shutdown: Shutdown
) -> None:
    supervisor = stage.make(Supervisor, shutdown, lambda: None, incarnation=0).actor
    stage.host.actors["supervisor"] = supervisor
    supervisor.heartbeat.handling = messages.Done()
    for _ in range(LOOKS):
        assert shutdown.restart_reason is None
        watchdog.look()
    assert str(shutdown.restart_reason).startswith("component supervisor hangs: ")
    assert stage.sent == []


def test_a_supervisor_that_waits_for_components_to_stop_does_not_hang(
    stage: Stage, watchdog: Watchdog, shutdown: Shutdown, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = stage.make(Supervisor, shutdown, lambda: None, incarnation=0)
    stage.host.actors["supervisor"] = supervisor.actor

    def wait_long(_: object) -> None:
        for _look in range(LOOKS):
            watchdog.look()

    monkeypatch.setattr(supervisor.component, "_stop_component", wait_long)
    supervisor.begin()
    supervisor.actor.handle(Envelope(messages.StopRequested()))
    assert (shutdown.is_over.is_set(), shutdown.restart_reason) == (True, None)
