"""A component as an actor: its mailbox, its turns, its errors. The home of pykka.

pykka leaves the loop of an actor to its subclass; a `Dispatcher` runs this one's turns. pykka
has traps: an exception on ``ask`` does not stop the actor; on ``tell`` it does; one in
``on_start`` stops it without a word; and anything that is not an `Exception` stops every actor
of the process. So a component never asks through pykka, builds its state when the first message
comes, and nothing leaves `ComponentActor.handle`. An expected error (`GangerError`) answers the
request; every other one ends this actor alone, and the supervisor is told.
"""

from __future__ import annotations

import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pykka

from ...storage import errors, settings
from ...transport.envelopes import Envelope
from ...transport.messages import (
    JOB_MESSAGES,
    Boot,
    ComponentFailed,
    ComponentReady,
    CrashComponent,
)
from .addresses import SUPERVISOR
from .component import Component, Runtime
from .mailbox import (
    QUIET,
    TURN_ENDED,
    Answer,
    Expired,
    Heartbeat,
    InboxItem,
    Mailbox,
    Quiet,
    Readable,
    Replaced,
    SliceDue,
    TurnEnded,
    WorkedOut,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .dispatcher import Dispatcher
    from .host import Host


class ComponentActor(pykka.Actor):
    """The actor of one incarnation of a component."""

    def __init__(
        self,
        component: type[Component],
        host: Host,
        incarnation: int,
        dispatcher: Dispatcher,
        *arguments: Any,  # noqa: ANN401 - what this component's class takes
    ) -> None:
        # pykka's constructor makes the inbox, which needs this.
        self.dispatcher = dispatcher
        super().__init__()
        self.name = component.name
        self.incarnation = incarnation
        self.heartbeat = Heartbeat()
        self.patience_seconds: float | None = None
        self.quiet_at: float | None = None
        self.readable: list[int] = []
        self._host = host
        self._is_closed = False
        self._is_booted = False
        self._early: list[Envelope] = []
        self.component = component(Runtime(host, self, dispatcher), *arguments)

    # ------------------------------------------------------------ pykka

    def _create_actor_inbox(self) -> Any:  # type: ignore[override]  # noqa: ANN401 - pykka's is static
        return self.dispatcher.make_mailbox(self)

    @staticmethod
    def _create_future() -> Any:  # noqa: ANN401 - likewise
        return pykka.ThreadingFuture()

    def _start_actor_loop(self) -> None:
        self.dispatcher.add(self)

    def begin(self) -> None:
        """Take messages from now on. Raises `OSError` or `RuntimeError` for want of resources."""
        self._start_actor_loop()
        self._host.actors[self.name] = self
        pykka.ActorRegistry.register(self.actor_ref)

    @property
    def mailbox(self) -> Mailbox:
        """The messages that wait."""
        return self.actor_inbox  # type: ignore[return-value]

    @property
    def is_over(self) -> bool:
        """Whether the actor takes no more messages."""
        return self.actor_stopped.is_set()

    @property
    def asks(self) -> bool:
        """Whether the component waits for a reply."""
        return self.component.runtime.asks

    def stop_within(self, seconds: float) -> bool:
        """Stop the actor when it has handled what waits; False if that takes longer."""
        try:
            self.actor_ref.stop(timeout=seconds)
        except pykka.Timeout:
            return False
        return True

    def on_stop(self) -> None:
        """Free what the component holds, at an orderly stop."""
        self._close()

    # ------------------------------------------------------------ a receiver of the directory

    def tell(self, envelope: Envelope) -> bool:
        """Put ``envelope`` into the mailbox; False if the actor has ended."""
        # As `pykka.ActorRef.tell`, without a call for each step and an error to be caught.
        if self.actor_stopped.is_set():
            return False
        self.put(envelope)
        return True

    def put(self, item: object) -> None:
        """Put an item of any kind into the mailbox."""
        self.actor_inbox.put(InboxItem(item))  # type: ignore[arg-type]

    def depth(self) -> int:
        """How many messages wait."""
        return self.mailbox.qsize()

    # ------------------------------------------------------------ turns, on the dispatcher's thread

    def run_turn(self) -> None:
        """Handle what waits, up to a number of messages or a time; then end the turn."""
        heartbeat, mailbox, clock = self.heartbeat, self.mailbox, self._host.clock
        heartbeat.thread = threading.get_ident()
        mailbox.is_scheduled = False
        # No request waits for a component that builds its state.
        is_counted = heartbeat.handled > 0
        handled = 0
        begun = now = clock()
        if self.readable:
            self.handle(Readable(self._descriptors_with_news()))
            self.readable.clear()
            handled = 1
        while handled < settings.TURN_MESSAGES_MAX and not self.actor_stopped.is_set():
            item = mailbox.take()
            if item is None:
                break
            self.handle_item(item)
            handled += 1
            now = clock()
            if now - begun >= settings.TURN_SECONDS:
                break
        if handled and not self.actor_stopped.is_set():
            self.handle(TURN_ENDED)
            now = clock()
        if is_counted:
            heartbeat.turns.note(now - begun, now)

    def _descriptors_with_news(self) -> Iterator[int]:
        """Each in its turn. One that is forgotten before has no news: its number may be reused."""
        while self.readable:
            yield self.readable.pop(0)

    def run_quiet_turn(self) -> None:
        """Let the component do what has time."""
        self.heartbeat.thread = threading.get_ident()
        begun = self._host.clock()
        self.handle(QUIET)
        if not self.actor_stopped.is_set():
            self.handle(TURN_ENDED)
        now = self._host.clock()
        self.heartbeat.turns.note(now - begun, now)

    def handle_item(self, item: Any) -> None:  # noqa: ANN401 - pykka's envelope, or an `InboxItem`
        """Handle what was in the mailbox: ours, or a word of pykka's own."""
        message = item.message
        if isinstance(message, Envelope | Answer | Expired | Replaced | SliceDue | WorkedOut):
            self.handle(message)
            return
        answer = self._handle_receive(message)
        if item.reply_to is not None:
            item.reply_to.set(answer)

    def handle(self, message: object) -> None:
        """Handle one message; nothing leaves this method."""
        heartbeat = self.heartbeat
        heartbeat.handling = message
        try:
            match message:
                case Envelope():
                    self._take(message)
                case _ if not self._is_booted:
                    # The turn of a message that came too early.
                    pass
                case TurnEnded():
                    self.component.turn_ended()
                    self.component.runtime.request_slice()
                case _:
                    self._take_item(message)
        except errors.GangerError as error:
            if isinstance(message, Envelope) and message.reply_to is not None:
                message.refuse(error)
            else:
                self.crash(message)
        except BaseException:  # noqa: BLE001 - pykka would stop every actor
            self.crash(message)
        finally:
            heartbeat.handled += 1
            heartbeat.handling = None

    def _take_item(self, item: object) -> None:
        runtime = self.component.runtime
        match item:
            case Readable():
                self.component.readable(item.descriptors)
            case Quiet():
                self.component.quiet()
            case Answer():
                runtime.take_answer(item.number, item.message)
            case Expired():
                runtime.expire(item.number)
            case Replaced():
                runtime.ask_again()
            case SliceDue():
                runtime.take_slice()
            case WorkedOut():
                runtime.take_worked_out(item)

    def _take(self, envelope: Envelope) -> None:
        match envelope.message:
            case Boot():
                self.component.boot()
                self._is_booted = True
                ready = ComponentReady(
                    component=self.name,
                    incarnation=self.incarnation,
                    quarantined=self.component.quarantined,
                )
                self.component.runtime.tell(SUPERVISOR, ready)
                while self._early:
                    self.handle(self._early.pop(0))
            case CrashComponent() if self._is_meant(envelope.message):
                if envelope.message.how == "hang":
                    threading.Event().wait()
                raise InjectedCrashError
            case _ if not self._is_booted:
                # Its sender may be faster than the supervisor's first message.
                self._early.append(envelope)
            case _ if envelope.deadline is not None and envelope.deadline < self._host.clock():
                envelope.refuse(errors.DeadlineError("the request waited until its deadline"))
            case _:
                self.component.receive(envelope)

    def _is_meant(self, message: CrashComponent) -> bool:
        return message.component == self.name and self.component.runtime.host.has_test_hooks

    # ------------------------------------------------------------ the end

    def abandon(self, refusal: errors.GangerError) -> None:
        """Give up on a component that hangs, and refuse every request that waits for it.

        Another thread calls this. The thread that hangs cannot be ended; should it go on, it finds
        that it can reach nothing, and ends. The dispatcher's other actors get a new thread.
        """
        self.heartbeat.is_abandoned = True
        self._host.directory.remove(self.name)
        self.actor_stopped.set()
        pykka.ActorRegistry.unregister(self.actor_ref)
        self.dispatcher.leave_behind(self)
        self._refuse_all(self.heartbeat.handling, "it hung", refusal)

    def crash(self, message: object) -> None:
        """End with the error that is being handled, over ``message``, and tell the supervisor."""
        if self.heartbeat.is_abandoned:
            self.component.log.warning("component went on after it was replaced, and ends")
            return
        text = traceback.format_exc()
        error = sys.exc_info()[1]
        self.component.log.error("component failed", error=repr(error), traceback=text)
        self._host.directory.remove(self.name)
        self.actor_stopped.set()
        pykka.ActorRegistry.unregister(self.actor_ref)
        refusal = errors.ComponentRestartedError(f"component {self.name} failed and is restarted")
        is_expected = isinstance(error, errors.GangerError)
        summary = str(error) if is_expected else f"{type(error).__name__}: {error}"
        self._refuse_all(message, summary, refusal)
        self._close()
        failed = ComponentFailed(component=self.name, incarnation=self.incarnation, text=summary)
        self.component.runtime.tell(SUPERVISOR, failed)

    def _refuse_all(self, message: object, problem: str, refusal: errors.GangerError) -> None:
        """Refuse all requests that wait; over ``message`` the component failed.

        A client may not repeat that one: it would end each successor, until there are none. What
        a job's process says is part of a talk that goes on, and is repeated.
        """
        if isinstance(message, Envelope):
            is_of_job = isinstance(message.message, JOB_MESSAGES)
            fatal = errors.RequestFatalError.of(self.name, problem)
            message.refuse(refusal if is_of_job else fatal)
        early, self._early = self._early, []
        for envelope in early:
            envelope.refuse(refusal)
        for item in self.mailbox.drain():
            if isinstance(item.message, Envelope):
                item.message.refuse(refusal)

    def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.component.close()
        except Exception:
            self.component.log.exception("closing failed")
        self.dispatcher.remove(self)


class InjectedCrashError(Exception):
    """A test asked this component to fail."""


def start(
    host: Host,
    component: type[Component],
    dispatcher: str,
    incarnation: int,
    *arguments: Any,  # noqa: ANN401 - what this component's class takes
) -> ComponentActor:
    """Start an actor, enter it into the directory, and let it build its state.

    Raises `OSError` or `RuntimeError` if there is no descriptor or thread for it.
    """
    served_by = host.dispatcher(dispatcher)
    actor = ComponentActor(component, host, incarnation, served_by, *arguments)
    actor.begin()
    host.directory.enter(component.name, actor)
    actor.tell(Envelope(Boot()))
    if incarnation > 1:
        host.repeat_asks(component.name)
    return actor
