"""The supervisor: starts the tree in order, restarts what crashed (`supervising`), stops it all.

It is the first actor to start and the last to stop. Components report their own failures
(`ComponentFailed`), the executor reports those of fork servers, the watchdog reports hangs.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, assert_never

import msgspec

from ...storage import errors, settings
from ...storage.disk import reserve
from ...storage.version import version
from ...transport import messages
from ...transport.envelopes import Address
from ..runtime.actor import start
from ..runtime.addresses import AUTHORITY, EXECUTOR, JOB_QUEUE, NODE_HUB, NODE_KEEPER, OUTPUT_READER
from ..runtime.component import Component
from . import placement, supervising
from .placement import NOTIFIED_OF_REPLACEMENT, PLACEMENT
from .supervising import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime


class Shutdown:
    """How the daemon ended, for the main thread that waits for it."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.is_stopping = False
        """The supervisor stops the components, and waits for each of them."""
        self.error: errors.GangerError | None = None
        self.restart_reason: str | None = None
        """Set if the daemon is to begin anew, at once and without a regular stop."""
        self.is_abandoned = False
        """Set if the daemon is to end at once, without a regular stop."""

    def restart(self, reason: str) -> None:
        """Begin the daemon anew, because a component hangs that cannot be replaced alone."""
        self.restart_reason = reason
        self.is_over.set()

    def abandon(self, error: errors.GangerError) -> None:
        """End without writing or deleting anything.

        Another daemon may own the directory now, or components still run and may write.
        """
        self.error = error
        self.is_abandoned = True
        self.is_over.set()


class Supervisor(Component[messages.SupervisorMessage]):
    """Owns the components."""

    name = "supervisor"

    def __init__(
        self, runtime: Runtime, shutdown: Shutdown, when_ready: Callable[[], None]
    ) -> None:
        super().__init__(runtime)
        self._shutdown = shutdown
        self._when_ready = when_ready
        self._started = time.time()
        # Read now: later there may be no descriptor left for the file.
        self._version = version()
        self._records: dict[str, Record] = {}
        self._ready: dict[str, int] = {}
        self._quarantined: list[str] = []
        self._incarnations: dict[str, int] = {}
        self._elsewhere = runtime.host.elsewhere
        self._components = placement.components(self._elsewhere, is_node=runtime.host.is_node)
        self._classes = {component.name: component for component in self._components}
        self._failed: set[str] = set()
        """Components that failed and were not started again yet."""
        self._is_up = False
        self._is_stopping = False

    def boot(self) -> None:
        """Start the first component; each of the others follows when the one before it is ready."""
        self._start(self._components[0])

    def close(self) -> None:
        """End the daemon: without a supervisor, the next failure would stay unnoticed."""
        if not self._shutdown.is_over.is_set():
            error = sys.exc_info()[1]
            why = "" if error is None else f": {error}"
            text = f"the supervisor itself failed{why}"
            self._shutdown.abandon(errors.RestartLimitError(text))

    def receive(self, envelope: Envelope[messages.SupervisorMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.ReadInfo():
                self._ask_for_info(envelope, with_disk=message.with_disk)
            case messages.StopDaemon():
                envelope.reply(messages.Done())
                self._stop_tree()
            case messages.StopRequested():
                self._stop_tree()
            case messages.CrashComponent():
                self._crash_component(envelope, message)
            case messages.ComponentReady():
                self._note_ready(message)
            case messages.ComponentFailed():
                self._take_failure(message)
            case messages.ComponentHung():
                self._take_hang(message)
            case messages.RestartDue():
                self._restart(message.component)
            case _:
                assert_never(message)

    # ------------------------------------------------------------ start and stop

    def _start(self, component: type[Component]) -> None:
        name = component.name
        incarnation = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        self._failed.discard(name)
        if not self._is_up:
            self.runtime.host.note_start(f"starting the {name.replace('_', ' ')}", 0, 0)
        if name in self._elsewhere:
            self.runtime.tell(AUTHORITY, messages.StartComponent(name, incarnation))
            return
        try:
            start(self.runtime.host, component, PLACEMENT[name], incarnation)
        except (OSError, RuntimeError) as error:
            # The system has no descriptor or thread for it: no failure of the component.
            self.log.error("component cannot be started", name=name, error=str(error))
            if incarnation == 1:
                raise
            self._failed.add(name)
            self._restart_later(name, settings.DISK_RETRY_SECONDS)
            return

    def _note_ready(self, message: messages.ComponentReady) -> None:
        name = message.component
        if message.incarnation != self._incarnations.get(name):
            return
        self._ready[name] = message.incarnation
        # A successor finds the files whole; people should still hear of it.
        self._quarantined += message.quarantined
        if message.incarnation > 1:
            for notified in NOTIFIED_OF_REPLACEMENT:
                self.runtime.tell(Address(notified), messages.ComponentReplaced(component=name))
            if name == AUTHORITY.name:
                self._start_elsewhere()
        if self._is_up:
            return
        missing = [found for found in self._components if found.name not in self._ready]
        if not missing:
            self._is_up = True
            try:
                self._when_ready()
            except errors.StorageError as error:
                self.log.critical("the endpoint file cannot be written", error=error.text)
                self._stop_tree(error)
                return
            self.log.info("ready")
        elif missing[0].name not in self._incarnations:
            self._start(missing[0])

    def _start_elsewhere(self) -> None:
        """Start the components of a process that was replaced."""
        for name in self._elsewhere:
            if name in self._incarnations:
                self._start(self._classes[name])

    def _stop_tree(self, error: errors.GangerError | None = None) -> None:
        if self._is_stopping:
            return
        self._is_stopping = self._shutdown.is_stopping = True
        self._shutdown.error = error
        for component in reversed(self._components):
            self._stop_component(component)
        self._shutdown.is_over.set()
        self.runtime.stop()

    def _stop_component(self, component: type[Component]) -> None:
        actor = self.runtime.host.actors.get(component.name)
        if actor is not None and not actor.stop_within(settings.STOP_SECONDS):
            self.log.error("component does not stop", name=component.name)

    # ------------------------------------------------------------ failure

    def _take_failure(self, message: messages.ComponentFailed) -> None:
        name = message.component
        expected = self._incarnations.get(name, 0)
        if self._is_stopping or message.incarnation != expected:
            return
        self._ready.pop(name, None)
        self._failed.add(name)
        if name == AUTHORITY.name:
            for other in self._elsewhere:
                self._ready.pop(other, None)
        now = self.runtime.clock()
        decision = supervising.after_failure(name, self._records.get(name, Record()), now)
        self._records[name] = decision.record
        if decision.action == "give_up":
            text = f"component {name} failed too often, the last time with: {message.text}"
            self.log.critical("restart limit reached", name=name)
            self._stop_tree(errors.RestartLimitError(text))
            return
        if not self._is_up and expected == 1:
            # A failure before the daemon was ever ready goes to the operator at once.
            self._stop_tree(errors.DataDirectoryError(message.text))
            return
        self.log.warning("restarting", name=name, delay=decision.delay_seconds)
        self._restart_later(name, decision.delay_seconds)

    def _take_hang(self, message: messages.ComponentHung) -> None:
        name = message.component
        if name in self._elsewhere or name not in self._classes:
            # What hangs there ends with its process.
            keeper = NODE_KEEPER if name == NODE_HUB.name else AUTHORITY
            self.runtime.tell(keeper, messages.ReplaceProcess(f"{name} hangs: {message.text}"))
            return
        actor = self.runtime.host.actors[name]
        if self._is_stopping or message.incarnation != actor.incarnation:
            return
        refusal = errors.ComponentRestartedError(f"component {name} hung and is replaced")
        actor.abandon(refusal)
        if supervising.policy_of(name).when_hung == "replace":
            self._take_failure(messages.ComponentFailed(name, message.incarnation, message.text))
            return
        # The listener has the refusals in its mailbox: it sends them before it stops.
        self._is_stopping = True
        if name != "wire_listener":
            self._stop_component(self._classes["wire_listener"])
        self._shutdown.restart(f"component {name} hangs: {message.text}")

    def _restart_later(self, name: str, delay_seconds: float) -> None:
        due = messages.RestartDue(component=name)
        if delay_seconds <= 0:
            self._restart(name)
            return
        self.runtime.later(delay_seconds, due)

    def _restart(self, name: str) -> None:
        if self._is_stopping:
            return
        if name in self._classes:
            is_process_there = name not in self._elsewhere or AUTHORITY.name in self._ready
            # If not, or if it was replaced meanwhile, it starts with its process.
            if name in self._failed and is_process_there:
                self._start(self._classes[name])
        else:
            _, _, template = name.partition(":")
            self.runtime.tell(EXECUTOR, messages.StartForkServer(template=template))

    def _crash_component(self, envelope: Envelope, message: messages.CrashComponent) -> None:
        if not self.runtime.host.has_test_hooks:
            raise errors.NotAllowedError("the daemon was not started with test hooks")
        if message.component not in self._classes:
            known = ", ".join(self._classes)
            raise errors.BadRequestError(f"component: expected one of {known}")
        self.runtime.tell(Address(message.component), message)
        envelope.reply(messages.Done())

    # ------------------------------------------------------------ information

    def _ask_for_info(self, envelope: Envelope, *, with_disk: bool) -> None:
        """Ask the queue, the executor and the output reader for what the reply needs."""

        def queue_reported(queue: messages.QueueReport) -> None:
            def executor_reported(executor: messages.ExecutorReport) -> None:
                def measured(found: messages.DiskUseRead | None) -> None:
                    envelope.reply(self._info(queue, executor, found))

                if not with_disk:
                    measured(None)
                    return
                # The rest matters more than how much there is in a large archive.
                deadline = self.runtime.clock() + settings.DISK_USE_WAIT_SECONDS
                asked = messages.ReadDiskUse()
                unknown = lambda _: measured(None)  # noqa: E731 - one line
                self.runtime.ask(OUTPUT_READER, asked, measured, unknown, deadline)

            asked = messages.ReadProcesses()
            self.runtime.ask(EXECUTOR, asked, executor_reported, envelope.refuse)

        self.runtime.ask(JOB_QUEUE, messages.ReadQueueState(), queue_reported, envelope.refuse)

    def _longest_turns(self) -> dict[str, float]:
        actors, now = self.runtime.host.actors, self.runtime.clock()
        return {
            name: actors[name].heartbeat.turns.longest(now)
            for name in self._classes
            if name in actors
        }

    def _info(
        self,
        queue: messages.QueueReport,
        executor: messages.ExecutorReport,
        measured: messages.DiskUseRead | None,
    ) -> messages.DaemonInfo:
        names = list(self._classes)
        rapi = self.runtime.host.rapi_states[-1] if self.runtime.host.rapi_states else None
        servers = [name for name in executor.memory if name.startswith("fork_server:")]
        return messages.DaemonInfo(
            pid=executor.pid,
            version=self._version,
            protocol=messages.PROTOCOL,
            data=str(self.places.data),
            started=self._started,
            endpoints=self.runtime.host.endpoints,
            sockets=[*self.runtime.host.listener_states.copy().values()],
            reuses_processes=self.runtime.host.reuses_processes,
            components=[
                messages.ComponentState(
                    name=name,
                    is_ready=name in self._ready or name in servers,
                    restarts=self._records.get(name, Record()).restarts,
                    process=AUTHORITY.name if name in self._elsewhere else "",
                )
                for name in (*names, *servers)
            ],
            counts=queue.counts,
            quarantined=[*queue.quarantined, *self._quarantined],
            flushes=queue.flushes,
            memory=executor.memory,
            is_read_only=queue.is_read_only,
            is_drained=queue.is_drained,
            opcode_problems=[*placement.left_out(), *(rapi.left_out if rapi else ())],
            longest_turns=self._longest_turns(),
            rapi=rapi,
            is_disk_full=queue.is_disk_full or _is_full(measured),
            lacks_room=queue.lacks_room,
            disk=None
            if measured is None
            else msgspec.structs.replace(measured.use, reserve=queue.reserve_bytes),
            output_dropped=queue.output_dropped,
            archive_indexed=queue.archive_indexed,
            outcomes=queue.outcomes,
            master=self.runtime.host.master_states[-1] if self.runtime.host.master_states else None,
        )


def _is_full(measured: messages.DiskUseRead | None) -> bool:
    return measured is not None and reserve.is_low(
        reserve.Space(measured.use.free, measured.use.total)
    )
