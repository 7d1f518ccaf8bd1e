"""The process in which some of the daemon's components live: ``python -m`` runs this file.

The daemon's supervisor decides what happens to its components, as if they lived in the daemon. The
process itself ends when its daemon tells it to, when the socket pair to the daemon is closed, and
when the thread ends that has started it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO, cast

import msgspec

from ...storage import errors, settings
from ...storage.alive import lock_files, parent_death
from ...storage.disk import documents, paths
from ...transport.envelopes import Directory
from ...transport.links.component_link import LinkedReceiver
from ...transport.messages import ComponentFailed, ComponentHung
from ..listeners.authority_listener import AuthorityListener
from ..nodes.node_hub import NodeHub
from ..processes.process_keeper import READY, STOP, ProcessSetting
from ..runtime.actor import start
from ..runtime.host import Host
from . import logs
from .log_writer import LogWriter
from .placement import COMPONENTS, PLACEMENT
from .supervisor import Shutdown
from .watchdog import SUPERVISOR, Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...transport.envelopes import Envelope
    from ..runtime.component import Component
    from ..runtime.served_actor import ServedActor

_FAILED_EXIT_CODE = 1
"""Of a process whose daemon is gone, or whose listener has failed."""


def main() -> None:
    """Serve until the daemon ends or says so. Arguments: the setting, open descriptors."""
    setting = msgspec.json.decode(sys.argv[1], type=ProcessSetting)
    for inherited in sys.argv[2:]:
        os.set_inheritable(int(inherited), False)  # noqa: FBT003
    control = socket.socket(fileno=int(sys.argv[2]))
    parent_death.end_with(setting.daemon_pid)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Sent to all processes of a terminal or a service: the daemon decides.
        signal.signal(number, signal.SIG_IGN)
    sys.setswitchinterval(settings.SWITCH_INTERVAL_SECONDS)
    gc.freeze()
    gc.set_threshold(*settings.COLLECTOR_THRESHOLDS)
    _AuthorityProcess(setting, control).serve()


class _AuthorityProcess:
    """What the main thread does: watch the components, and the daemon."""

    def __init__(self, setting: ProcessSetting, control: socket.socket) -> None:
        places = paths.Places(Path(setting.data), Path(setting.run))
        self._socket = Path(setting.socket)
        stream = os.fdopen(documents.open_to_append(places.log), "a", encoding="utf-8")
        self._writer = LogWriter(stream)
        self._log = logs.to_file(cast("TextIO", self._writer)).bind(pid=os.getpid())
        self._control = control
        stem = lock_files.daemon_stem(time.time())
        self._lock_file = lock_files.create(places.lock_files, stem)
        self._host = Host(
            directory=Directory(),
            places=places,
            log=self._log,
            daemon_lock=self._lock_file,
            has_test_hooks=setting.has_test_hooks,
            budget=setting.budget,
            own_socket=self._socket,
        )
        self._components = setting.components
        self._watchdog = Watchdog(self._host, Shutdown(), None, setting.hung_after_seconds)

    def serve(self) -> None:
        """Open the socket; then wait for the end."""
        known: tuple[type[Component], ...] = (*COMPONENTS, NodeHub)
        classes = {component.name: component for component in known}
        ours = {name: (classes[name], PLACEMENT[name]) for name in self._components}
        name = AuthorityListener.name
        opened = functools.partial(self._control.sendall, READY)
        actor = start(
            self._host,
            AuthorityListener,
            PLACEMENT[name],
            1,
            self._socket,
            ours,
            opened,
            self._fail,
        )
        listener = cast("AuthorityListener", actor.component)
        for other in (*classes, SUPERVISOR):
            if other not in ours:
                self._host.directory.enter(other, LinkedReceiver(listener.link, other))
        to_supervisor = LinkedReceiver(listener.link, SUPERVISOR)
        self._host.directory.enter(
            SUPERVISOR, _ToSupervisor(self._host, to_supervisor, self._writer, self._fail)
        )
        while not select.select([self._control], [], [], settings.WATCHDOG_SECONDS)[0]:
            self._watchdog.look()
            self._watchdog.look_at_local_sockets()
        if self._control.recv(len(STOP)) != STOP:
            self._fail("the daemon is gone")
        self._stop(listener)

    def _stop(self, listener: AuthorityListener) -> None:
        listener.is_stopping = True
        actors = self._host.actors
        for name in [*reversed(self._components), AuthorityListener.name]:
            actor: ServedActor | None = actors.get(name)
            if actor is not None and not actor.stop_within(settings.STOP_SECONDS / 4):
                self._log.error("component does not stop", name=name)
        self._lock_file.remove()
        self._writer.close(settings.LOG_CLOSE_SECONDS)
        os._exit(0)

    def _fail(self, reason: str) -> NoReturn:
        """End at once: the kernel closes every file. The daemon starts a successor."""
        self._log.critical("this process ends; the daemon replaces it", reason=reason)
        with contextlib.suppress(OSError):
            self._control.sendall(reason.encode(errors="replace"))
        self._writer.close(settings.LOG_CLOSE_SECONDS)
        os._exit(_FAILED_EXIT_CODE)


class _ToSupervisor:
    """Stands for the supervisor: what a component hangs at is refused here, before it learns."""

    def __init__(
        self,
        host: Host,
        supervisor: LinkedReceiver,
        writer: LogWriter,
        fail: Callable[[str], NoReturn],
    ) -> None:
        self._host = host
        self._fail = fail
        self._writer = writer
        self._supervisor = supervisor

    def tell(self, envelope: Envelope) -> bool:
        """Pass on ``envelope``."""
        message = envelope.message
        if isinstance(message, ComponentFailed) and message.component == NodeHub.name:
            # Its keeper starts both anew.
            self._fail(message.text)
        if isinstance(message, ComponentHung):
            refusal = f"component {message.component} hung and is replaced"
            actor = self._host.actors[message.component]
            actor.abandon(errors.ComponentRestartedError(refusal))
            # The daemon kills this process as soon as it knows; the log says where it hangs.
            self._writer.catch_up(settings.LOG_CLOSE_SECONDS)
        return self._supervisor.tell(envelope)

    def depth(self) -> int:
        """How many messages wait there."""
        return self._supervisor.depth()


if __name__ == "__main__":
    main()
