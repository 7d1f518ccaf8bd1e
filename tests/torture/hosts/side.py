"""One machine in the world of hosts: real components on a stage that virtual time moves."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from tests.actors.runtime.stage import Stage, StageDispatcher

from ganger.actors.runtime.actor import ComponentActor
from ganger.actors.runtime.dispatcher import Alarm
from ganger.actors.runtime.mailbox import Mailbox, Replaced
from ganger.transport import messages
from ganger.transport.envelopes import Envelope

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.torture.hosts.agenda import Agenda

    from ganger.actors.runtime.component import Component
    from ganger.actors.runtime.served_actor import ServedActor

    Model = Callable[[Envelope], object]


class _Dispatcher(StageDispatcher):
    """Turns come when the agenda says so."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self._side = side

    def make_mailbox(self, actor: ServedActor) -> Mailbox:
        return Mailbox(functools.partial(self._side.wake, actor))

    def later(self, seconds: float, actor: ServedActor, item: object) -> Alarm:
        alarm = Alarm(seconds, actor, item)

        def ring() -> None:
            if not alarm.is_canceled and self._side.has(actor):
                actor.put(alarm.item)

        self._side.agenda.later(seconds, ring)
        return alarm


class Side(Stage):
    """A machine. ``models`` stand for components that are not here, by name."""

    def __init__(self, agenda: Agenda, root: Path) -> None:
        self.agenda = agenda
        self.clock_error = 0.0
        """How wrong the wall clock is, in seconds."""
        super().__init__(root)
        self.dispatcher = _Dispatcher(self)
        self.models: dict[str, Model] = {}
        self.actors: dict[str, ComponentActor] = {}
        self.when_turned: Callable[[str], None] = lambda _: None
        self._incarnations = 0

    # What `Stage` takes for its own.

    @property
    def now(self) -> float:
        return self.agenda.now

    @now.setter
    def now(self, _: float) -> None:
        """The agenda knows."""

    @property
    def today(self) -> float:
        return self.agenda.wall + self.clock_error

    @today.setter
    def today(self, _: float) -> None:
        """The agenda knows."""

    def tell(self, name: str, envelope: Envelope) -> None:
        message = envelope.message
        if name in self.actors:
            self.actors[name].put(envelope)
        elif isinstance(message, messages.ComponentFailed):
            self.agenda.problem(f"{message.component} crashed: {message.text}")
        elif name in self.models:
            self.agenda.soon(functools.partial(self._model, name, envelope))

    def _model(self, name: str, envelope: Envelope) -> None:
        if name in self.models:
            self.models[name](envelope)

    # Components come and go.

    def begin(self, component: type[Component]) -> Any:
        """Start it; what it builds its state from is on disk."""
        self._incarnations += 1
        actor = ComponentActor(component, self.host, self._incarnations, self.dispatcher)
        self.actors[actor.name] = self.host.actors[actor.name] = actor
        actor.put(Envelope(messages.Boot()))
        for other in self.actors.values():
            if other.asks:
                other.put(Replaced(actor.name))
        return actor.component

    def kill(self, *names: str) -> None:
        """These are gone, with all that they had not written."""
        for name in names:
            actor = self.actors.pop(name, None)
            if actor is not None:
                del self.host.actors[name]
                with contextlib.suppress(AttributeError):
                    actor.component.close()

    def has(self, actor: ServedActor) -> bool:
        """Whether this is the newest actor of its name, and lives."""
        return self.actors.get(actor.name) is actor

    def wake(self, actor: ServedActor) -> None:
        """It has mail: its turn comes soon."""
        self.agenda.soon(functools.partial(self._turn, actor))

    def read(self, name: str) -> None:
        """A descriptor of it has news."""
        actor = self.actors.get(name)
        if actor is not None:
            actor.readable.append(1)
            actor.mailbox.request_turn()

    def _turn(self, actor: Any) -> None:
        if self.has(actor):
            actor.run_turn()
            self.when_turned(actor.name)

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill(*self.actors)
        self.daemon_lock.remove()
