"""What a component does that keeps a process in which some of the other components live.

It starts that process (`authority_process`), stands in the directory for its components, and fails
when the process ends or gives no sign of life: the supervisor then starts both anew. The process
ends with its daemon: it has one end of a socket pair, and the kernel kills it when the thread ends
that has started it. Until it has ended, no other daemon gets the queue directory, because it holds
an open file with the lock on that.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from ...storage import errors, settings
from ...storage.alive import lock_files
from ...storage.disk import descriptors
from ...transport import messages
from ...transport.envelopes import Envelope
from ...transport.links.component_link import ComponentLink, LinkedReceiver
from ...transport.zmq.connection_event import ConnectionEvent
from ...transport.zmq.dealer import Dealer
from ..runtime.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..runtime.component import Runtime

MessageT = TypeVar("MessageT")

READY = b"ready"
STOP = b"stop"

LISTENER = "authority_listener"
_FRAMES_AT_ONCE = 256


class ProcessSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is told at its start."""

    data: str
    run: str
    socket: str
    daemon_pid: int
    components: list[str]
    has_test_hooks: bool
    hung_after_seconds: float
    budget: descriptors.DescriptorBudget | None


class ProcessLostError(errors.DataDirectoryError):
    """The process has ended, or gives no sign of life."""


class ProcessKeeper(Component[MessageT]):
    """Owns the process, and the socket to it. A subclass says which components live there."""

    does: ClassVar[str]
    """What the process is for, in an error."""

    @property
    def _names(self) -> list[str]:
        """The components that live there."""
        raise NotImplementedError

    @property
    def _socket(self) -> Path:
        """Where its listener is."""
        raise NotImplementedError

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._dealer: Dealer | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        # A thread holds it while it uses the dealer.
        self._using = threading.Lock()
        self._link = ComponentLink(runtime.host.directory, self._send, runtime.clock)
        looks = runtime.host.hung_after_seconds / settings.WATCHDOG_SECONDS
        self._pulses_missed_max = max(2, math.ceil(looks))
        self._pulses_missed = 0

    def _open(self) -> None:
        """Start the process, and wait until it can be reached."""
        self._control, self._process = self._start()
        self._wait_until_ready(self._control)
        self._dealer = Dealer(f"ipc://{self._socket}")
        self._wait_for_connection(self._dealer)
        self.log.info("process started", name=self.name, process=self._process.pid)
        self.runtime.host.processes[self.name] = self._process.pid
        for descriptor in (self._control.fileno(), *self._dealer.filenos()):
            self.runtime.watch(descriptor)
        self._ask_for_pulse()

    def readable(self, descriptors: Iterable[int]) -> None:
        """The process has sent something, or has ended."""
        if self._control is not None and self._control.fileno() in descriptors:
            raise self._lost(self._end_of_process())

    def turn_ended(self) -> None:
        """Read everything: the descriptors are edge-triggered, also after a send."""
        for _ in range(_FRAMES_AT_ONCE):
            with self._using:
                item = None if self._dealer is None else self._dealer.take()
            if item is None:
                return
            if isinstance(item, bytes):
                self._link.take(item)
            elif item not in (ConnectionEvent.REACHED, ConnectionEvent.MADE):
                # As a rule because the process has just ended.
                raise self._lost(self._end_of_process(f"has no connection: {item.name.lower()}"))
        self.runtime.host.directory.tell(self.name, Envelope(messages.FramesWaiting()))

    def close(self) -> None:
        """End the process: in order, or, after a failure, at once."""
        host = self.runtime.host
        host.processes.pop(self.name, None)
        if self._control is not None and self._process is not None:
            if sys.exc_info()[0] is None:
                self._stop_in_order(self._control, self._process)
            self._process.kill()
            self._process.wait()
            self._control.close()
            # A killed process has left its own; the daemon's is alive.
            lock_files.remove_dead_daemons(self.places.lock_files)
        for name in self._names:
            host.directory.remove(name)
        with self._using:
            dealer, self._dealer = self._dealer, None
            if dealer is not None:
                dealer.close()

    # ------------------------------------------------------------ the process

    def _start(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        host = self.runtime.host
        setting = ProcessSetting(
            data=os.fspath(self.places.data),
            run=os.fspath(self.places.run),
            socket=os.fspath(self._socket),
            daemon_pid=os.getpid(),
            components=self._names,
            has_test_hooks=host.has_test_hooks,
            hung_after_seconds=host.hung_after_seconds,
            budget=host.budget,
        )
        ours, theirs = socket.socketpair()
        passed = [theirs.fileno()]
        if host.directory_descriptor is not None:
            passed.append(host.directory_descriptor)
        command = [sys.executable, "-P", "-m", "ganger.actors.supervision.authority_process"]
        words = [msgspec.json.encode(setting).decode(), *map(str, passed)]
        with theirs:
            try:
                process = subprocess.Popen(
                    [*command, *words], stdin=subprocess.DEVNULL, pass_fds=passed, cwd="/"
                )
            except OSError:
                ours.close()
                raise
        return ours, process

    def _wait_until_ready(self, control: socket.socket) -> None:
        control.settimeout(settings.AUTHORITY_START_SECONDS)
        try:
            said = control.recv(settings.ERROR_RESULT_BYTES_MAX)
        except TimeoutError as error:
            raise self._lost("does not get ready") from error
        if said != READY:
            raise ProcessLostError(said.decode()) if said else self._lost(self._end_of_process())

    def _wait_for_connection(self, dealer: Dealer) -> None:
        deadline = time.monotonic() + settings.AUTHORITY_START_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            if dealer.receive(left) is ConnectionEvent.MADE:
                return
        raise self._lost("does not let the daemon in")

    def _end_of_process(self, otherwise: str = "has closed its socket") -> str:
        """How the process has ended, or ``otherwise`` if it lives."""
        assert self._process is not None
        try:
            status = self._process.wait(settings.WATCHDOG_SECONDS)
        except subprocess.TimeoutExpired:
            return f"(pid {self._process.pid}) {otherwise}"
        return f"(pid {self._process.pid}) has ended with status {status}"

    def _stop_in_order(self, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            control.sendall(STOP)
            process.wait(settings.STOP_SECONDS * 0.8)

    def _ask_for_pulse(self) -> None:
        """Fail if the process has not answered for long: counted, as the watchdog counts looks."""
        if self._pulses_missed >= self._pulses_missed_max:
            raise self._lost("gives no sign of life")
        self._pulses_missed += 1
        self._link.tell(LISTENER, Envelope(messages.ReadPulse(), _Pulse(self)))
        self.runtime.later(settings.WATCHDOG_SECONDS, messages.PulseDue())

    def take_pulse(self) -> None:
        """The process has given a sign of life."""
        self._pulses_missed = 0

    # ------------------------------------------------------------ its components

    def _start_component(self, message: messages.StartComponent) -> None:
        host, name = self.runtime.host, message.component
        self._link.forget(name)
        self._link.tell(LISTENER, Envelope(message))
        # Later messages to it arrive after this one.
        host.directory.enter(name, LinkedReceiver(self._link, name))
        if message.incarnation > 1:
            host.repeat_asks(name)

    def _lost(self, problem: str) -> ProcessLostError:
        return ProcessLostError(f"the process of {self.does} {problem}")

    def _send(self, frame: bytes) -> bool:
        """Send a frame, in any thread; False if the process is gone, or does not read."""
        with self._using:
            if self._dealer is None or not self._dealer.send(frame):
                return False
            has_more = self._dealer.has_more
        if has_more:
            # No descriptor reports it any more.
            self.runtime.host.directory.tell(self.name, Envelope(messages.FramesWaiting()))
        return True


class _Pulse:
    """Takes the replies to `ReadPulse`."""

    def __init__(self, keeper: ProcessKeeper[Any]) -> None:
        self._keeper = keeper

    def tell(self, envelope: Envelope) -> None:
        """The process has answered."""
        if isinstance(envelope.message, messages.Done):
            self._keeper.take_pulse()
