"""What one call of the command line knows: its data directory, and the client it opens."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from . import output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..storage.paths import Places
    from ..transport.client.client import Client


INTERRUPTED_EXIT_CODE = 130


class Call(msgspec.Struct, frozen=True):
    """The options that stand before the command."""

    data: str | None = None

    @property
    def places(self) -> Places:
        """The paths in the data directory."""
        from ..storage import paths  # noqa: PLC0415

        return paths.places(self.data)

    @contextmanager
    def client(self, timeout: float | None = None) -> Iterator[Client]:
        """A client of the daemon; ``timeout`` is the deadline of each call, in seconds."""
        from ..storage import settings  # noqa: PLC0415
        from ..transport.client.client import Client  # noqa: PLC0415 - zmq is not for every command

        deadline = settings.CLIENT_DEADLINE_SECONDS if timeout is None else timeout
        with Client(self.data, timeout=deadline, on_outage=_tell) as client:
            yield client


def _tell(text: str) -> None:
    # A user who has closed the error stream does not want this line.
    with suppress(OSError):
        output.echo(f"ganger: {text}", err=True)
