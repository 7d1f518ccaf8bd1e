"""A component and its runtime: what an actor knows and does, and what it stands on.

A component has no thread, clock or mailbox of its own. It gets its messages from a
`ComponentActor`, one at a time, and reaches everything outside through its `Runtime`. Messages come
in turns: when no more wait, or after `settings.TURN_MESSAGES_MAX`, `turn_ended` runs once, and does
together what the turn collected: one flush, one write. Replies that depend on it are sent there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from ...storage import errors, settings
from ...transport.envelopes import Envelope
from ...transport.messages import Failure, InterimReply
from .mailbox import SLICE_DUE, Answer, Expired, WorkedOut
from .works import Works

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import typing_extensions

    from ...storage.disk import paths
    from ...transport.envelopes import Address
    from ...transport.messages import Message, Request
    from .dispatcher import Alarm, Dispatcher
    from .host import Host
    from .idle_work import IdleWork
    from .served_actor import ServedActor
    from .works import Work

    # A component without an argument may accept anything.
    MessageT = typing_extensions.TypeVar("MessageT", default=Any)
else:
    MessageT = TypeVar("MessageT")

ToldT = TypeVar("ToldT", bound="Message")
ReplyT = TypeVar("ReplyT", bound="Message")


class Component(Generic[MessageT]):
    """One actor of the daemon, known by its name, that accepts the messages ``MessageT``."""

    name: ClassVar[str]
    quarantined: tuple[str, ...] = ()
    """A sentence about each file that its start could not read, and has put aside."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.log = runtime.log

    @property
    def places(self) -> paths.Places:
        """Where everything lies."""
        return self.runtime.host.places

    def boot(self) -> None:
        """Build the state from disk and from the living. The first message calls this."""

    def receive(self, envelope: Envelope[MessageT]) -> None:
        """Handle one message."""
        raise NotImplementedError

    def readable(self, descriptors: Iterable[int]) -> None:
        """Handle watched descriptors that are readable or at their end.

        One that `Runtime.forget` has forgotten before its turn is left out: the kernel may have
        given its number to another file meanwhile.
        """
        raise NotImplementedError

    def turn_ended(self) -> None:
        """Do together what the turn collected."""

    def quiet(self) -> None:
        """Do what has time: no message came for `Runtime.patience_seconds`."""

    def close(self) -> None:
        """Free descriptors and the like, at a stop and after a crash."""


class PendingRequest(NamedTuple):
    """A request that waits for its reply."""

    handle: int
    to: Address[Any]
    envelope: Envelope
    then: Callable[[Any], None]
    otherwise: Callable[[errors.GangerError], None]
    alarm: Alarm


class ReplyTo:
    """Takes the replies to an actor's requests. Any thread may call it."""

    def __init__(self, actor: ServedActor) -> None:
        self._actor = actor

    def tell(self, envelope: Envelope) -> None:
        """Put the reply into the actor's mailbox."""
        self._actor.put(Answer(envelope.number, envelope.message))


class Runtime:
    """The runtime of one incarnation of a component."""

    def __init__(self, host: Host, actor: ServedActor, dispatcher: Dispatcher) -> None:
        self.host = host
        self.incarnation = actor.incarnation
        self.log = host.log.bind(component=actor.name)
        self._actor = actor
        self._dispatcher = dispatcher
        self._reply_to = ReplyTo(actor)
        self._asked: dict[int, PendingRequest] = {}
        self._numbers: dict[int, int] = {}
        """Under which number each of them was sent last, by its handle."""
        # Numbers start at the clock, so that late replies to a predecessor match none.
        self._asked_last = time.monotonic_ns()
        self._handles_last = 0
        self._works = Works(actor.name, self._work_out)
        self._is_slice_due = False

    # ------------------------------------------------------------ messages

    def tell(self, to: Address[ToldT], message: ToldT) -> None:
        """Send ``message``; it is lost while the component is being restarted."""
        self.forward(to, Envelope(message))

    def forward(self, to: Address[Any], envelope: Envelope) -> None:
        """Pass on ``envelope``; the directory refuses it if the component is being restarted."""
        self._check_not_abandoned()
        self.host.directory.tell(to.name, envelope)

    def depth(self, to: Address[Any]) -> int:
        """How many messages wait in the mailbox of a component."""
        return self.host.directory.depth(to.name)

    # ------------------------------------------------------------ requests

    def ask(
        self,
        to: Address[Any],
        request: Request[ReplyT],
        then: Callable[[ReplyT], None],
        otherwise: Callable[[errors.GangerError], None],
        deadline: float | None = None,
    ) -> int:
        """Send ``request``; later call ``then`` with its reply, or ``otherwise`` with an error.

        An expected error in ``then`` goes to ``otherwise``, too. After an `InterimReply` another
        reply follows, and ``then`` is called again. Returns a handle for `stop_asking`.

        A component that was restarted may have lost the request, or a reply that it needed itself:
        so the request is sent again whenever a component was replaced. `DeadlineError`: no reply
        came before ``deadline``; None: within `settings.ASK_SECONDS`. Later replies are ignored,
        and so are replies to a predecessor of this component.
        """
        now = self.clock()
        deadline = now + settings.ASK_SECONDS if deadline is None else deadline
        envelope = Envelope(request, self._reply_to, deadline=deadline)
        # `_send` gives the alarm its item.
        self._handles_last += 1
        handle = self._handles_last
        alarm = self._later(deadline - now, None)
        self._send(PendingRequest(handle, to, envelope, then, otherwise, alarm))
        return handle

    def stop_asking(self, handle: int) -> None:
        """Do not wait for the reply any more."""
        if (number := self._numbers.get(handle)) is not None:
            self._forget(self._asked[number], number)

    def take_answer(self, number: int, message: Message) -> None:
        """The reply to request ``number`` has come."""
        asked = self._asked.get(number)
        if asked is None or _is_restart(message):
            return
        if not isinstance(message, InterimReply):
            self._forget(asked, number)
        if isinstance(message, Failure):
            asked.otherwise(errors.from_wire(message.error, message.text))
            return
        try:
            asked.then(message)
        except errors.GangerError as error:
            asked.otherwise(error)

    def expire(self, number: int) -> None:
        """The reply to request ``number`` has not come in time."""
        if (asked := self._asked.get(number)) is not None:
            self._forget(asked, number)
            asked.otherwise(errors.DeadlineError("no reply in time"))

    def ask_again(self) -> None:
        """Repeat all requests that wait: a component was replaced."""
        waiting, self._asked = self._asked, {}
        for asked in waiting.values():
            self._send(asked)

    def _send(self, asked: PendingRequest) -> None:
        self._asked_last += 1
        self._asked[self._asked_last] = asked
        self._numbers[asked.handle] = self._asked_last
        asked.alarm.item = Expired(self._asked_last)
        self.forward(asked.to, msgspec.structs.replace(asked.envelope, number=self._asked_last))

    def _forget(self, asked: PendingRequest, number: int) -> None:
        asked.alarm.cancel()
        del self._asked[number], self._numbers[asked.handle]

    @property
    def asks(self) -> bool:
        """Whether this component waits for a reply."""
        return bool(self._asked)

    # ------------------------------------------------------------ work in slices

    def work(
        self, work: Work, envelope: Envelope | None = None, *, outlives_asker: bool = False
    ) -> None:
        """Do ``work`` in slices: it yields at the end of each; or a function, for a thread.

        The first slice is taken now. Each turn that follows takes one more, of the work that has
        waited longest, so that messages, the components beside this one and other work come in
        between. What it returns answers ``envelope``. An expected error refuses that; any other
        error refuses it for good, and ends this component.

        The work ends early, at a ``yield``, when the envelope's deadline has passed
        (`DeadlineError`) or its peer is gone (`forget_peer`), unless it ``outlives_asker``.
        """
        self._works.begin(work, envelope, outlives_asker=outlives_asker)

    @property
    def work_count(self) -> int:
        """How many works are under way."""
        return len(self._works.under_way)

    def forget_peer(self, peer: bytes) -> None:
        """End the work that answers this peer: it is gone."""
        self._works.forget_peer(peer)

    def request_slice(self) -> None:
        """The turn has ended: if work is under way, the next one takes a slice of it."""
        if self._works.under_way and not self._is_slice_due:
            self._is_slice_due = True
            self._actor.put(SLICE_DUE)

    def take_slice(self) -> None:
        """Take one slice of the work that is under way."""
        self._is_slice_due = False
        self._works.go_on(self.clock())

    def take_worked_out(self, found: WorkedOut) -> None:
        """A thread has done a part of the work that is under way."""
        self._works.worked_out(found, self.clock())

    def _work_out(self, wanted: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                found = WorkedOut(wanted())
            except BaseException as error:  # noqa: BLE001 - the work has to hear of it
                found = WorkedOut(error=error)
            self._actor.put(found)

        try:
            self._dispatcher.in_thread(self._actor.name, run)
        except RuntimeError:
            # There is no thread to be had.
            run()

    # ------------------------------------------------------------ time

    def clock(self) -> float:
        """Seconds on a clock that never goes back."""
        return self.host.clock()

    def wall_clock(self) -> float:
        """The time of day, in seconds since 1970; it may be set."""
        return self.host.wall_clock()

    def later(self, seconds: float, message: Message) -> Alarm:
        """Tell this component ``message`` after this many seconds, unless the alarm is canceled."""
        return self._later(seconds, Envelope(message))

    def _later(self, seconds: float, item: object) -> Alarm:
        self._check_not_abandoned()
        return self._dispatcher.later(seconds, self._actor, item)

    def in_thread(self, work: Callable[[], Message]) -> None:
        """Do ``work`` in a thread, and tell this component, or its successor, the result."""
        name, directory = self._actor.name, self.host.directory

        def run() -> None:
            directory.tell(name, Envelope(work()))

        self._dispatcher.in_thread(name, run)

    def when_idle(self, steps: Iterator[object], finished: Callable[[], Message]) -> IdleWork:
        """Take ``steps`` in a thread, each while this component's dispatcher has nothing to do.

        Then tell this component, or its successor, what ``finished`` returns. `RuntimeError`: there
        is no thread to be had.
        """
        name, directory = self._actor.name, self.host.directory

        def finish() -> None:
            directory.tell(name, Envelope(finished()))

        return self._dispatcher.when_idle(name, steps, finish)

    # ------------------------------------------------------------ descriptors and turns

    def watch(self, descriptor: int) -> None:
        """Call `Component.readable` whenever ``descriptor`` is readable or at its end."""
        self._check_not_abandoned()
        self._dispatcher.watch(descriptor, self._actor)

    def watch_for(self, descriptor: int, *, reading: bool, writing: bool) -> None:
        """Call `Component.readable` when a watched descriptor is readable, or writable, instead."""
        self._check_not_abandoned()
        self._dispatcher.watch_for(descriptor, reading=reading, writing=writing)

    def forget(self, descriptor: int) -> None:
        """No longer watch ``descriptor``; call this before closing it."""
        self._check_not_abandoned()
        self._dispatcher.forget(descriptor)

    @property
    def has_mail(self) -> bool:
        """Whether a message waits for this component."""
        return not self._actor.mailbox.empty()

    @property
    def have_others_work(self) -> bool:
        """Whether another actor of the same dispatcher waits for its turn."""
        return self._dispatcher.have_others_work()

    @property
    def has_news(self) -> bool:
        """Whether a message or a descriptor waits, for this component or one beside it."""
        return self._dispatcher.has_news(self._actor)

    @property
    def patience_seconds(self) -> float | None:
        """How long to wait for a message before `Component.quiet`; None: for ever."""
        return self._actor.patience_seconds

    @patience_seconds.setter
    def patience_seconds(self, seconds: float | None) -> None:
        self._actor.patience_seconds = seconds

    def _check_not_abandoned(self) -> None:
        if self._actor.heartbeat.is_abandoned:
            raise AbandonedError

    def stop(self) -> None:
        """Stop this component when it has handled what waits."""
        self._actor.stop()


class AbandonedError(BaseException):
    """This component hung and was replaced; nothing it does has an effect."""


def _is_restart(message: Message) -> bool:
    """Whether the request was refused because its receiver is being restarted."""
    return isinstance(message, Failure) and message.error == errors.ComponentRestartedError().name
