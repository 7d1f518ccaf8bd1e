"""What every actor of the daemon shares: mailbox, turns, errors, readiness. The home of pykka.

How it works. A `Component` is a pykka actor whose messages are `Envelope` values. Three
things are added to pykka:

*Turns.* A mailbox hands out messages until it is empty (or a limit is reached) and then
says so once: `Component.turn_ended` runs, and what the turn collected is done together: one
flush, one write. Replies that depend on it are sent there.

*Descriptors.* A mailbox can watch file descriptors beside its messages, so that an actor
with a socket needs no second thread.

*Errors.* pykka has five traps here: an exception on ``ask`` does not stop the actor; on
``tell`` it does; one in ``on_start`` stops it without a word; a mailbox has no bound; and
anything that is not an `Exception` stops every actor of the process. So: nothing is ever
asked, only told; state is built in `boot`, run by the first message; depth is counted, and
listeners refuse work above a limit; nothing leaves `on_receive`. An expected error
(`GangerError`) answers the request; every other one ends this actor alone, and the
supervisor is told.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pykka

from ...storage import descriptors, errors, settings
from ...transport.addresses import Directory, Envelope, Parcel
from ...transport.messages import (
    JOB_MESSAGES,
    Boot,
    ComponentFailed,
    ComponentReady,
    CrashComponent,
)

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from ...storage.lock_files import LockFile
    from ...transport.addresses import ComponentAddress


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a component is given at its start, and keeps."""

    directory: Directory
    places: settings.Places
    log: FilteringBoundLogger
    daemon_lock: LockFile
    remote_endpoint: str | None = None
    has_test_hooks: bool = False
    endpoints: list[str] = []
    """Where the doors are, filled in by the listeners."""

    budget: descriptors.DescriptorBudget | None = None
    """Who may have how many descriptors; None: as the system's limit has it."""
    descriptors_before: int | None = None
    """The limit of descriptors that processes of jobs get; None: this process's."""

    components: dict[str, Component] = {}
    """The living components by name, for who watches over them."""

    def address(self, name: str) -> ComponentAddress:
        """The address of another component."""
        return self.directory.address(name)


class Vitals:
    """What can be seen of a component from outside while it works.

    Written by the component's own thread, but for ``is_abandoned``, which never goes back.
    """

    __slots__ = ("handled", "handling", "is_abandoned", "thread")

    def __init__(self) -> None:
        self.handled = 0
        """How many messages it has done with."""
        self.handling: object = None
        """The message it works on; None: it waits for one."""
        self.thread = 0
        self.is_abandoned = False
        """Nobody waits for it any more: it hung, and another one has taken its place."""


class _TurnEnded:
    """Handed out once when a turn is over."""


class _Quiet:
    """Handed out when nothing has come for as long as the owner's patience."""


class _Readable:
    """Handed out when watched descriptors are ready."""

    __slots__ = ("descriptors",)

    def __init__(self, descriptors: list[int]) -> None:
        self.descriptors = descriptors


_TURN_ENDED = Parcel(_TurnEnded())
_QUIET = Parcel(_Quiet())


class Mailbox:
    """A pykka inbox that says when a turn is over."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._handled = 0
        self.patience_seconds: float | None = None
        """How long the owner waits for a message; then `Component.quiet`. None: for ever."""

    def put(self, parcel: Any, /) -> None:  # noqa: ANN401 - pykka's own envelope
        """Add a message; called from any thread."""
        self._queue.put(parcel)

    def get(self) -> Any:  # noqa: ANN401 - pykka's own envelope
        """The next message; blocks while there is none."""
        if not self._handled:
            return self._next()
        if self._handled < settings.TURN_MESSAGES_MAX and not self._queue.empty():
            # Asked first: an error costs more.
            try:
                parcel = self._queue.get_nowait()
            except queue.Empty:
                # Who abandons the owner was faster.
                pass
            else:
                self._handled += 1
                return parcel
        self._handled = 0
        return _TURN_ENDED

    def _next(self) -> Any:  # noqa: ANN401
        """What begins a turn."""
        try:
            parcel = self._queue.get(timeout=self.patience_seconds)
        except queue.Empty:
            parcel = _QUIET
        self._handled = 1
        return parcel

    def empty(self) -> bool:
        """Whether no message waits."""
        return self._queue.empty()

    def qsize(self) -> int:
        """How many messages wait."""
        return self._queue.qsize()

    def drain(self) -> list[Any]:
        """Everything that waits, taken out; for whoever ends the owner, from any thread."""
        parcels = []
        with contextlib.suppress(queue.Empty):
            while True:
                parcels.append(self._queue.get_nowait())
        return parcels

    def close(self) -> None:
        """Free what the mailbox holds."""


class PollingMailbox(Mailbox):
    """A mailbox that also waits for file descriptors."""

    def __init__(self) -> None:
        super().__init__()
        self._poll = select.epoll()
        # If there is no descriptor left for this one, the other goes with the object.
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._wake, select.EPOLLIN)
        self._is_asleep = False
        # Held to wake the owner: its descriptor may belong to somebody else after `close`.
        self._waking = threading.Lock()

    def watch(self, descriptor: int) -> None:
        """Hand out a message when ``descriptor`` is readable (or at its end)."""
        self._poll.register(descriptor, select.EPOLLIN)

    def forget(self, descriptor: int) -> None:
        """No longer watch ``descriptor``; call it before closing."""
        self._poll.unregister(descriptor)

    def put(self, parcel: Any, /) -> None:  # noqa: ANN401
        """Add a message and wake the owner if it sleeps."""
        self._queue.put(parcel)
        if self._is_asleep:
            # Lowered by who is going to wake the owner, so that a burst wakes it once.
            self._is_asleep = False
            with self._waking:
                if self._wake >= 0:
                    os.eventfd_write(self._wake, 1)

    def _next(self) -> Any:  # noqa: ANN401
        # Descriptors come first, or a flood of messages would starve them.
        # The flag goes up before the queue is looked at, so that a message put in between
        # either is seen here or wakes the poll.
        while True:
            self._is_asleep = True
            ready = self._poll.poll(0 if not self._queue.empty() else self.patience_seconds)
            self._is_asleep = False
            descriptors = []
            for descriptor, _ in ready:
                if descriptor == self._wake:
                    os.eventfd_read(self._wake)
                else:
                    descriptors.append(descriptor)
            if descriptors:
                self._handled = 1
                return Parcel(_Readable(descriptors))
            try:
                parcel = self._queue.get_nowait()
            except queue.Empty:
                if self.patience_seconds is None or ready:
                    continue
                parcel = _QUIET
            self._handled = 1
            return parcel

    def close(self) -> None:
        """Close the poll; messages put later wake nobody."""
        self._is_asleep = False
        self._poll.close()
        with self._waking:
            wake, self._wake = self._wake, -1
            if wake >= 0:
                os.close(wake)


class Component(pykka.ThreadingActor):
    """An actor of the daemon, known by its name."""

    name: ClassVar[str]
    use_daemon_thread = True

    def __init__(self, surroundings: Surroundings, incarnation: int) -> None:
        super().__init__()
        self.surroundings = surroundings
        self.incarnation = incarnation
        self.log = surroundings.log.bind(component=self.name)
        self._is_closed = False
        self._is_booted = False
        self._early: list[Envelope] = []
        self.vitals = Vitals()
        surroundings.components[self.name] = self

    # What a component says of itself.

    def boot(self) -> None:
        """Build the state from disk and from the living. Runs as the first message."""

    def receive(self, envelope: Envelope) -> None:
        """Handle one message."""
        raise NotImplementedError

    def turn_ended(self) -> None:
        """Do together what the turn collected."""

    def quiet(self) -> None:
        """Do what has time: nothing has come for as long as the mailbox's patience."""

    def close(self) -> None:
        """Free descriptors and the like; runs at a stop and after a crash."""

    # What it may use.

    @property
    def mailbox(self) -> Mailbox:
        """The mailbox, to say how long to wait for a message."""
        assert isinstance(self.actor_inbox, Mailbox)
        return self.actor_inbox

    @property
    def places(self) -> settings.Places:
        """Where everything lies."""
        return self.surroundings.places

    def address(self, name: str) -> ComponentAddress:
        """The address of another component."""
        if self.vitals.is_abandoned:
            raise AbandonedError
        return self.surroundings.address(name)

    # How it runs.

    @staticmethod
    def _create_actor_inbox() -> Any:  # noqa: ANN401 - pykka's type is private
        return Mailbox()

    def on_receive(self, message: object) -> None:
        """Take one message from pykka; nothing leaves this method."""
        vitals = self.vitals
        vitals.handling = message
        try:
            match message:
                case Envelope():
                    self._take(message)
                case _ if not self._is_booted:
                    # The turn of a message that came too early.
                    pass
                case _TurnEnded():
                    self.turn_ended()
                case _Quiet():
                    self.quiet()
                case _Readable():
                    self._take_readable(message.descriptors)
        except errors.GangerError as error:
            if isinstance(message, Envelope) and message.reply_to is not None:
                message.refuse(error)
            else:
                self._crash(message)
        except BaseException:  # noqa: BLE001 - the fifth trap: nothing else may get out
            self._crash(message)
        finally:
            vitals.handled += 1
            vitals.handling = None

    def abandon(self, refusal: errors.GangerError) -> None:
        """Give up on a component that hangs: refuse whoever waits for it, let nobody wait more.

        Called by another thread. The component's own thread cannot be ended; should it ever
        go on, it finds that it can reach nobody, and ends.
        """
        self.vitals.is_abandoned = True
        self.surroundings.directory.remove(self.name)
        self.actor_stopped.set()
        pykka.ActorRegistry.unregister(self.actor_ref)
        self._refuse_all(self.vitals.handling, "it hung", refusal)

    def _take_readable(self, descriptors: list[int]) -> None:
        raise NotImplementedError

    def on_stop(self) -> None:
        """Free what the component holds, at an orderly stop."""
        self._close()

    def _take(self, envelope: Envelope) -> None:
        match envelope.message:
            case Boot():
                self.vitals.thread = threading.get_ident()
                self.boot()
                self._is_booted = True
                ready = ComponentReady(component=self.name, incarnation=self.incarnation)
                self.address("supervisor").notify(ready)
                while self._early:
                    self.on_receive(self._early.pop(0))
            case CrashComponent() if self._is_meant(envelope.message):
                if envelope.message.how == "hang":
                    threading.Event().wait()
                raise InjectedCrashError
            case _ if not self._is_booted:
                # Whoever knows the address may be faster than the supervisor's first message.
                self._early.append(envelope)
            case _:
                self.receive(envelope)

    def _is_meant(self, message: CrashComponent) -> bool:
        return message.component == self.name and self.surroundings.has_test_hooks

    def _crash(self, message: object) -> None:
        if self.vitals.is_abandoned:
            self.log.warning("component went on after it was replaced, and ends")
            return
        text = traceback.format_exc()
        error = sys.exc_info()[1]
        self.log.error("component failed", error=repr(error), traceback=text)
        self.surroundings.directory.remove(self.name)
        self.actor_stopped.set()
        pykka.ActorRegistry.unregister(self.actor_ref)
        refusal = errors.ComponentRestartedError(f"component {self.name} failed and is restarted")
        is_expected = isinstance(error, errors.GangerError)
        summary = str(error) if is_expected else f"{type(error).__name__}: {error}"
        self._refuse_all(message, summary, refusal)
        self._close()
        failed = ComponentFailed(component=self.name, incarnation=self.incarnation, text=summary)
        self.address("supervisor").notify(failed)

    def _refuse_all(self, message: object, problem: str, refusal: errors.GangerError) -> None:
        """Refuse everything that waits; ``message`` is that over which the component failed.

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
        mailbox = self.actor_inbox
        assert isinstance(mailbox, Mailbox)
        for parcel in mailbox.drain():
            if isinstance(parcel.message, Envelope):
                parcel.message.refuse(refusal)

    def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.close()
        except Exception:
            self.log.exception("closing failed")
        mailbox = self.actor_inbox
        if isinstance(mailbox, Mailbox):
            mailbox.close()


class PollingComponent(Component):
    """A component that also waits for file descriptors."""

    def readable(self, descriptors: list[int]) -> None:
        """Handle watched descriptors that are ready."""
        raise NotImplementedError

    @property
    def mailbox(self) -> PollingMailbox:
        """The mailbox, to watch descriptors with."""
        assert isinstance(self.actor_inbox, PollingMailbox)
        return self.actor_inbox

    @staticmethod
    def _create_actor_inbox() -> Any:  # noqa: ANN401 - pykka's type is private
        return PollingMailbox()

    def _take_readable(self, descriptors: list[int]) -> None:
        self.readable(descriptors)


def stop_all(component: type[Component], timeout_seconds: float) -> bool:
    """Stop every actor of this class; False if one did not stop in time."""
    stopped = True
    for reference in pykka.ActorRegistry.get_by_class(component):
        try:
            reference.stop(timeout=timeout_seconds)
        except pykka.Timeout:
            stopped = False
    return stopped


class AbandonedError(BaseException):
    """This component hung and was replaced; what it does now counts no more."""


class InjectedCrashError(Exception):
    """A test asked this component to fail."""
