"""The process of the remote API: ``python -m`` runs this file.

Its daemon (`actors/supervision/rapi_keeper`) gives it the listening socket, and one end of a socket
pair: over that it says that it lives, and what the log should have. It ends with its daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..storage import entry_points, errors, settings
from ..storage.alive import parent_death
from ..storage.disk import descriptors, paths
from ..transport.client.async_client import AsyncClient
from . import table
from .application import Service, application
from .authentication import Authentication
from .certificate import CertificateFile
from .chains import Chains
from .feed import Feed
from .guards import Limits
from .hosts import Hosts
from .metrics import JobTimes
from .notes import Notes
from .opcode_names import OpcodeNames
from .serving import Server
from .timeline import Timeline
from .users_file import UsersFile
from .views import Views


class RapiSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is told at its start."""

    data: str
    run: str
    daemon_pid: int
    is_authentication_required: bool = True
    has_tls: bool = True
    hosts: list[str] = []
    """Further names by which clients ask for the server."""
    limits: Limits = Limits()


def main() -> None:
    """Serve until the daemon ends. Arguments: the setting, the socket pair's end, the listener."""
    setting = msgspec.json.decode(sys.argv[1], type=RapiSetting)
    control = socket.socket(fileno=int(sys.argv[2]))
    listener = socket.socket(fileno=int(sys.argv[3]))
    for inherited in (control, listener):
        inherited.set_inheritable(False)
    parent_death.end_with(setting.daemon_pid)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Sent to all processes of a terminal or a service: the daemon decides.
        signal.signal(number, signal.SIG_IGN)
    notes = Notes(control)
    for problem in table.INSTALLED.problems:
        notes.error(entry_points.LEFT_OUT, problem=problem)
    gc.freeze()
    try:
        asyncio.run(_serve(setting, control, listener, notes))
    except errors.GangerError as error:
        notes.error("the remote API cannot start", error=error.text)
        sys.exit(error.exit_code)


async def _serve(
    setting: RapiSetting, control: socket.socket, listener: socket.socket, notes: Notes
) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(control, over.set)
    places = paths.Places(Path(setting.data), Path(setting.run))
    async with AsyncClient(setting.data) as client:
        authentication = Authentication(
            UsersFile(places.rapi_users, notes),
            notes,
            is_required=setting.is_authentication_required,
        )
        service, following = _service(client, authentication, notes)
        certificate = CertificateFile(places.rapi_certificate, notes) if setting.has_tls else None
        hosts = Hosts([*setting.hosts, socket.gethostname()])
        if certificate is not None:
            hosts.certify(certificate.names)
        server = Server(
            application(table.RESOURCES, service, hosts),
            notes,
            limits=setting.limits.within(descriptors.limit()),
            context=lambda: certificate.context if certificate is not None else None,
        )
        server.pulse()
        await server.listen(listener)

        def look() -> None:
            notes.alive()
            authentication.look()
            if certificate is not None:
                certificate.look()
                hosts.certify(certificate.names)

        await _until(over, look, server)
        server.close()
        for task in following:
            task.cancel()
        authentication.close()


def _service(
    client: AsyncClient, authentication: Authentication, notes: Notes
) -> tuple[Service, list[asyncio.Task[None]]]:
    """What all requests share, and the tasks that keep it up to date."""
    feed, times = Feed(secrets.token_hex(4)), JobTimes()
    timeline = Timeline(feed.live)
    feed.call(times.hear)
    feed.call(timeline.hear)
    service = Service(
        authentication=authentication,
        notes=notes,
        views=Views(client),
        shared={
            Feed: feed,
            JobTimes: times,
            Timeline: timeline,
            Chains: Chains(),
            OpcodeNames: OpcodeNames(),
        },
    )
    following = feed.follow(client), timeline.follow(feed, client)
    return service, [asyncio.create_task(one) for one in following]


async def _until(over: asyncio.Event, look: Callable[[], None], server: Server) -> None:
    """Look again and again at what may have changed, until ``over``."""
    while not over.is_set():
        look()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), settings.WATCHDOG_SECONDS)
        server.pulse()


if __name__ == "__main__":
    main()
