"""The component that keeps the process of the remote API (`ganger.rapi.process`).

It owns the listening socket, so that clients can wait while the process is replaced. It starts the
process, writes to the log what the process says, and starts it again when it has ended or gives no
sign of life. The daemon goes on without it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, assert_never

import msgspec

from ...storage import entry_points, settings
from ...storage.access import rapi_settings
from ...transport import messages
from ..runtime.component import Component
from ..runtime.rapi_options import RapiOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime

PROGRAM = "ganger.rapi.process"

_LINE_BYTES_MAX = 64 * 1024
_LINES_AT_ONCE = 100
_FIRST_PAUSE_SECONDS = 0.1
_DOUBLINGS_MAX = 10


class _Said(msgspec.Struct):
    """A line of the process; without an event, it is a sign of life."""

    event: str = ""
    level: str = "info"
    fields: dict[str, object] = {}


class RapiKeeper(Component[messages.RapiKeeperMessage]):
    """Owns the listening socket and the process of the remote API."""

    name = "rapi_keeper"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._options = runtime.host.rapi or RapiOptions()
        self._listener: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._is_alive = False
        self._is_ready = False
        self._silent_looks = 0
        self._restarts = 0
        self._failures = 0
        self._problem = ""
        self._left_out: list[str] = []

    def boot(self) -> None:
        """Open the listening socket, and start the process, without waiting until it is ready."""
        if self.runtime.host.rapi is None:
            return
        self._start()
        self.runtime.later(settings.WATCHDOG_SECONDS, messages.RapiPulseDue())

    def receive(self, envelope: Envelope[messages.RapiKeeperMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.RapiStartDue():
                self._start()
            case messages.RapiPulseDue():
                self._look()
                self.runtime.later(settings.WATCHDOG_SECONDS, messages.RapiPulseDue())
            case _:
                assert_never(message)

    def readable(self, descriptors: Iterable[int]) -> None:
        """The process has said something, or has ended."""
        if self._control is None or self._control.fileno() not in descriptors:
            return
        for _ in range(_LINES_AT_ONCE):
            try:
                line = self._control.recv(_LINE_BYTES_MAX, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                line = b""
            if not line:
                self._end("has ended")
                return
            self._hear(line)

    def close(self) -> None:
        """End the process, and close the socket."""
        self._kill()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    # ------------------------------------------------------------ the process

    def _start(self) -> None:
        try:
            if self._listener is None:
                self._listener = _listen(self._options)
            self._control, self._process = self._started(self._listener)
        except OSError as error:
            self._restart_later(f"cannot start: {error.strerror}")
            return
        self.runtime.watch(self._control.fileno())
        self.runtime.host.processes[self.name] = self._process.pid
        self._is_ready = False
        self._silent_looks = 0
        self._left_out = []
        self._note_state()

    def _started(self, listener: socket.socket) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        setting = {
            "data": os.fspath(self.places.data),
            "run": os.fspath(self.places.run),
            "daemon_pid": os.getpid(),
            "is_authentication_required": self._options.is_authentication_required,
            "has_tls": self._options.has_tls,
            "hosts": self._options.hosts,
        }
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        passed = [theirs.fileno(), listener.fileno()]
        words = [msgspec.json.encode(setting).decode(), *map(str, passed)]
        with theirs:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", PROGRAM, *words],
                    stdin=subprocess.DEVNULL,
                    pass_fds=passed,
                    cwd="/",
                )
            except OSError:
                ours.close()
                raise
        return ours, process

    def _hear(self, line: bytes) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            said = msgspec.json.decode(line, type=_Said)
            self._is_alive = True
            if not said.event:
                if not self._is_ready:
                    self._is_ready, self._failures, self._problem = True, 0, ""
                    self.log.info("remote API ready", url=self._url())
                    self._note_state()
                return
            log = {"warning": self.log.warning, "error": self.log.error}.get(
                said.level, self.log.info
            )
            log(said.event, by=self.name, **said.fields)
            if said.event == entry_points.LEFT_OUT:
                self._left_out.append(str(said.fields.get("problem")))
                return
            if said.level == "error" and not self._is_ready:
                self._problem = str(said.fields.get("error", said.event))

    def _look(self) -> None:
        """Replace the process if it has given no sign of life for long."""
        if self._process is None:
            return
        self._silent_looks = 0 if self._is_alive else self._silent_looks + 1
        self._is_alive = False
        if self._silent_looks * settings.WATCHDOG_SECONDS > self.runtime.host.hung_after_seconds:
            self._end("gives no sign of life")

    def _end(self, why: str) -> None:
        process = self._process
        self._kill()
        code = "" if process is None else f", exit code {process.returncode}"
        self._restart_later(self._problem or f"its process {why}{code}")

    def _kill(self) -> None:
        control, self._control = self._control, None
        process, self._process = self._process, None
        self.runtime.host.processes.pop(self.name, None)
        if control is not None:
            self.runtime.forget(control.fileno())
            control.close()
        if process is not None:
            process.kill()
            process.wait()

    def _restart_later(self, problem: str) -> None:
        self._is_ready = False
        self._problem = problem
        self._restarts += 1
        self._failures += 1
        seconds = pause_seconds(self._failures)
        self.log.warning("remote API is started again", why=problem, delay=seconds)
        self._note_state()
        self.runtime.later(seconds, messages.RapiStartDue())

    # ------------------------------------------------------------ what others see

    def _url(self) -> str:
        scheme = "https" if self._options.has_tls else "http"
        address = self._options.address
        host = f"[{address}]" if ":" in address else address
        return f"{scheme}://{host}:{self._port()}/"

    def _port(self) -> int:
        if self._listener is None:
            return self._options.port or rapi_settings.PORT
        return int(self._listener.getsockname()[1])

    def _note_state(self) -> None:
        states = self.runtime.host.rapi_states
        states[:] = [
            messages.RapiState(
                address=self._options.address,
                port=self._port(),
                url=self._url(),
                is_ready=self._is_ready,
                restarts=self._restarts,
                problem=self._problem,
                left_out=[*self._left_out],
            )
        ]


def pause_seconds(failures: int) -> float:
    """How long to wait after a number of failures in a row, from 1 on."""
    doublings = min(failures - 1, _DOUBLINGS_MAX)
    return float(min(_FIRST_PAUSE_SECONDS * 2**doublings, rapi_settings.START_SECONDS_MAX))


def _listen(options: RapiOptions) -> socket.socket:
    """The listening socket; `OSError` if no port is free, or the address is none of ours."""
    first = rapi_settings.PORT if options.port is None else options.port
    tries = rapi_settings.PORTS_TRIED if options.port is None else 1
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    for port in range(first, first + tries):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((options.address, port))
            listener.listen(rapi_settings.BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or port == first + tries - 1:
                raise
        else:
            return listener
    raise OSError(errno.EADDRINUSE, "no port is free")
