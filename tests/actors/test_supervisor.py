"""The supervisor on a stage: components that cannot be started."""

from __future__ import annotations

import errno

import pytest
from tests.actors.stage import Stage, Staged, Timer

from ganger.actors.scheduler import Scheduler
from ganger.actors.supervisor import Ending, Supervisor
from ganger.transport import messages


class Started:
    """Stands for a component's reference."""


def test_a_component_is_started_again_when_there_are_descriptors_for_it(
    stage: Stage, timers: list[Timer], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []
    refusals = [None, OSError(errno.EMFILE, "Too many open files"), RuntimeError("no thread"), None]

    def start(_surroundings: object, _incarnation: int) -> Started:
        if (error := refusals.pop(0)) is not None:
            raise error
        return Started()

    monkeypatch.setattr(Scheduler, "start", start)
    monkeypatch.setattr(Stage, "enter", lambda _, name, __: entered.append(name), raising=False)
    supervisor = Staged(Supervisor(stage.surroundings, Ending(), lambda: None), stage)
    supervisor.component._is_booted = supervisor.component._is_up = True
    supervisor.component._start(Scheduler)
    assert entered == ["scheduler"]
    failed = messages.ComponentFailed(component="scheduler", incarnation=1, text="it failed")
    supervisor.notify(failed)
    for _ in range(2):
        [timer] = timers
        timers.clear()
        timer.run_out()
        supervisor.notify(stage.take_one(messages.RestartDue))
    assert timers == []
    assert entered == ["scheduler"] * 2
    # What could not be started has not failed: the limit is for what fails.
    assert supervisor.component._records["scheduler"].restarts == 1
