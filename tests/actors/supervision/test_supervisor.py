"""The supervisor on a stage: components that cannot be started."""

from __future__ import annotations

import errno
from unittest import mock

import msgspec
import pytest
from tests.actors.runtime.stage import Asker, Stage, Staged

from ganger.actors.runtime.component import Component
from ganger.actors.runtime.host import Host
from ganger.actors.scheduling.scheduler import Scheduler
from ganger.actors.supervision.placement import (
    COMPONENTS,
    NOTIFIED_OF_REPLACEMENT,
    PLACEMENT,
    components,
)
from ganger.actors.supervision.supervisor import Shutdown, Supervisor
from ganger.storage import errors
from ganger.storage.disk.disk_parts import DiskUse
from ganger.transport import messages
from ganger.transport.envelopes import Envelope


def test_a_component_is_started_again_when_there_are_descriptors_for_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []
    refusals = [None, OSError(errno.EMFILE, "Too many open files"), RuntimeError("no thread"), None]

    def start(_host: Host, component: type[Component], dispatcher: str, _: int) -> None:
        assert dispatcher == PLACEMENT[component.name]
        if (error := refusals.pop(0)) is not None:
            raise error
        entered.append(component.name)

    monkeypatch.setattr("ganger.actors.supervision.supervisor.start", start)
    supervisor = stage.make(Supervisor, Shutdown(), lambda: None, incarnation=0)
    supervisor.begin()
    supervisor.component._is_up = True
    supervisor.component._start(Scheduler)
    assert entered == ["scheduler"]
    failed = messages.ComponentFailed(component="scheduler", incarnation=1, text="it failed")
    supervisor.notify(failed)
    for _ in range(2):
        [timer] = stage.timers
        stage.timers.clear()
        timer.run_out()
        supervisor.notify(stage.take_one(messages.RestartDue))
    assert stage.timers == []
    assert entered == ["scheduler"] * 2
    # What could not be started has not failed: the limit is for what fails.
    assert supervisor.component._records["scheduler"].restarts == 1


def test_a_component_that_failed_is_not_ready_until_its_successor_is_which_others_hear_of(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = stage.make(Supervisor, Shutdown(), lambda: None, incarnation=0)
    report_ready(supervisor, monkeypatch)

    def shown() -> tuple[bool, int]:
        queue = messages.QueueReport(counts={}, quarantined=[], flushes=0, is_read_only=False)
        executor = messages.ExecutorReport(pid=1, memory={})
        [found] = [
            one
            for one in supervisor.component._info(queue, executor, None).components
            if one.name == "scheduler"
        ]
        return found.is_ready, found.restarts

    assert (shown(), stage.take(messages.ComponentReplaced)) == ((True, 0), [])
    supervisor.notify(messages.ComponentFailed(component="scheduler", incarnation=1, text="no"))
    # What its predecessor said may come late.
    supervisor.notify(messages.ComponentReady(component="scheduler", incarnation=1))
    assert (shown(), stage.take(messages.ComponentReplaced)) == ((False, 1), [])
    supervisor.notify(messages.ComponentReady(component="scheduler", incarnation=2))
    assert shown() == (True, 1)
    assert {name for name, message in stage.sent} == set(NOTIFIED_OF_REPLACEMENT)
    assert stage.take(messages.ComponentReplaced)[0].component == "scheduler"


def test_a_daemon_whose_first_components_cannot_be_started_does_not_start(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = mock.Mock(side_effect=OSError(errno.EMFILE, "Too many open files"))
    monkeypatch.setattr("ganger.actors.supervision.supervisor.start", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        stage.make(Supervisor, Shutdown(), lambda: None, incarnation=0).component.boot()
    assert stage.timers == []


def report_ready(supervisor: Staged[Supervisor], patch: pytest.MonkeyPatch) -> None:
    """Every component that the supervisor starts is ready at once; none really starts."""
    patch.setattr("ganger.actors.supervision.supervisor.start", lambda *_: None)
    supervisor.begin()
    supervisor.component.boot()
    for component in COMPONENTS:
        ready = messages.ComponentReady(component=component.name, incarnation=1)
        supervisor.actor.handle(Envelope(ready))


def test_a_fork_server_that_ended_is_started_again_by_the_executor(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = stage.make(Supervisor, Shutdown(), lambda: None, incarnation=0)
    report_ready(supervisor, monkeypatch)
    ended = messages.ComponentFailed(component="fork_server:full", incarnation=0, text="no")
    supervisor.notify(ended)
    assert stage.take_one(messages.StartForkServer, to="executor").template == "full"


def test_a_daemon_that_cannot_write_its_endpoint_file_ends_with_the_error_of_the_disk(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise errors.StorageError("/data/daemon.json: Input/output error")

    shutdown = Shutdown()
    supervisor = stage.make(Supervisor, shutdown, refuse, incarnation=0)
    monkeypatch.setattr(supervisor.component, "_stop_component", lambda _: None)
    report_ready(supervisor, monkeypatch)
    assert shutdown.is_over.is_set()
    assert isinstance(shutdown.error, errors.StorageError)
    assert shutdown.error.text == "/data/daemon.json: Input/output error"


def test_a_component_stops_before_those_that_it_needs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = stage.make(Supervisor, Shutdown(), lambda: None, incarnation=0)
    report_ready(supervisor, monkeypatch)
    asker = Asker()
    stopped: list[tuple[type[Component], int]] = []
    monkeypatch.setattr(
        supervisor.component,
        "_stop_component",
        lambda component: stopped.append((component, len(asker.answers))),
    )
    for _ in range(2):
        supervisor.actor.handle(Envelope(messages.StopDaemon(), asker))
    # It is answered first, while there is a listener, and done once.
    assert stopped == [(component, 1) for component in reversed(COMPONENTS)]
    assert asker.answers == [messages.Done()] * 2


def test_a_supervisor_that_fails_names_its_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("the number")

    shutdown = Shutdown()
    report_ready(stage.make(Supervisor, shutdown, fail, incarnation=0), monkeypatch)
    assert shutdown.error is not None
    assert shutdown.error.text == "the supervisor itself failed: the number"
    # The components run on, so the daemon may let go of nothing before its process ends.
    assert (shutdown.is_over.is_set(), shutdown.is_abandoned) == (True, True)


@pytest.mark.parametrize("name", ["scheduler", "config_store", "wire_listener"])
def test_for_a_component_that_hangs_and_cannot_be_replaced_the_daemon_begins_anew(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shutdown = Shutdown()
    supervisor = stage.make(Supervisor, shutdown, lambda: None, incarnation=0)
    report_ready(supervisor, monkeypatch)
    stopped: list[bool] = []

    def stop_within(_: float) -> bool:
        stopped.append(shutdown.is_over.is_set())
        return True

    actors = {each: mock.Mock(incarnation=1, stop_within=stop_within) for each in PLACEMENT}
    stage.host.actors.update(actors)
    # This report came late: the component that hung is replaced already.
    supervisor.notify(messages.ComponentHung(component=name, incarnation=0, text="no"))
    assert not actors[name].abandon.called
    supervisor.notify(messages.ComponentHung(component=name, incarnation=1, text="no"))
    assert actors[name].abandon.called
    assert shutdown.is_over.is_set() == (name != "scheduler")
    # The refusals of its requests are sent first, by a listener that does not hang itself.
    assert stopped == ([False] if name == "config_store" else [])
    # Once the daemon begins anew, nothing else is replaced any more.
    supervisor.notify(messages.ComponentHung(component="filter_evaluator", incarnation=1, text=""))
    assert actors["filter_evaluator"].abandon.called == (name == "scheduler")


THERE = ("lock_manager", "config_store")


@pytest.fixture(name="apart")
def supervisor_of_two_processes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> tuple[Staged[Supervisor], list[tuple[str, int]]]:
    """A supervisor whose components are all ready, two of them elsewhere; what started here."""
    started: list[tuple[str, int]] = []

    def start(_host: Host, component: type[Component], _: str, incarnation: int) -> None:
        started.append((component.name, incarnation))

    stage.host = msgspec.structs.replace(stage.host, elsewhere=dict.fromkeys(THERE, "/socket"))
    monkeypatch.setattr("ganger.actors.supervision.supervisor.start", start)
    supervisor = stage.make(Supervisor, Shutdown(), lambda: None, incarnation=0)
    supervisor.begin()
    supervisor.component.boot()
    for component in components(THERE):
        ready = messages.ComponentReady(component=component.name, incarnation=1)
        supervisor.actor.handle(Envelope(ready))
    return supervisor, started


def starts_there(stage: Stage) -> list[tuple[str, int]]:
    """The components of the other process that were started."""
    found = stage.take(messages.StartComponent)
    return [(message.component, message.incarnation) for message in found]


def test_components_elsewhere_are_started_by_the_keeper_of_their_process(
    stage: Stage, apart: tuple[Staged[Supervisor], list[tuple[str, int]]]
) -> None:
    supervisor, started = apart
    assert starts_there(stage) == [(name, 1) for name in THERE]
    assert started[0] == ("authority", 1)
    assert {name for name, _ in started} == {*PLACEMENT} - {
        *THERE,
        "authority_listener",
        "node_hub",
        "node_link",
    }
    assert supervisor.component._is_up


def test_a_component_elsewhere_that_fails_is_started_again_alone(
    stage: Stage, apart: tuple[Staged[Supervisor], list[tuple[str, int]]]
) -> None:
    supervisor, started = apart
    stage.sent.clear()
    supervisor.notify(messages.ComponentFailed(component="lock_manager", incarnation=1, text="no"))
    assert starts_there(stage) == [("lock_manager", 2)]
    assert started[-1] == (COMPONENTS[-1].name, 1)


def test_with_their_process_its_components_start_again_and_once(
    stage: Stage, apart: tuple[Staged[Supervisor], list[tuple[str, int]]]
) -> None:
    supervisor, started = apart
    stage.sent.clear()
    for _ in range(2):
        # The second time it would be started again after a delay.
        supervisor.notify(
            messages.ComponentFailed(
                component="lock_manager",
                incarnation=supervisor.component._incarnations["lock_manager"],
                text="no",
            )
        )
    assert starts_there(stage) == [("lock_manager", 2)]
    supervisor.notify(messages.ComponentFailed(component="authority", incarnation=1, text="no"))
    assert started[-1] == ("authority", 2)
    [timer] = stage.timers
    timer.run_out()
    supervisor.notify(stage.take_one(messages.RestartDue))
    # There is no process for it now.
    assert starts_there(stage) == []
    supervisor.notify(messages.ComponentReady(component="authority", incarnation=2))
    assert starts_there(stage) == [("lock_manager", 3), ("config_store", 2)]
    supervisor.notify(messages.RestartDue(component="lock_manager"))
    assert starts_there(stage) == []


@pytest.mark.parametrize("name", [*THERE, "authority_listener"])
def test_for_a_component_elsewhere_that_hangs_its_process_is_replaced(
    stage: Stage, apart: tuple[Staged[Supervisor], list[tuple[str, int]]], name: str
) -> None:
    supervisor, _ = apart
    supervisor.notify(messages.ComponentHung(component=name, incarnation=1, text="why"))
    assert stage.take_one(messages.ReplaceProcess, to="authority").reason == f"{name} hangs: why"


def test_the_disk_is_measured_for_those_alone_who_ask_how_much_it_has(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = stage.make(Supervisor, Shutdown(), lambda: None, incarnation=0)
    report_ready(supervisor, monkeypatch)
    use = DiskUse(**dict.fromkeys(DiskUse.__struct_fields__, 0))
    reports = {
        messages.ReadQueueState: messages.QueueReport(
            counts={}, quarantined=[], flushes=0, is_read_only=False
        ),
        messages.ReadProcesses: messages.ExecutorReport(pid=1, memory={}),
        messages.ReadDiskUse: messages.DiskUseRead(use),
    }
    for with_disk in (False, True):
        asker = supervisor.say(messages.ReadInfo(with_disk=with_disk))
        asked = []
        for kind, report in reports.items():
            for request in stage.take_requests(kind):
                asked.append(kind)
                request.reply(report)
                supervisor.handle_mail()
        assert asked == [*reports][: 3 if with_disk else 2]
        assert asker.answer_as(messages.DaemonInfo).disk == (use if with_disk else None)
