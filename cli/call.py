"""What one call of the command line knows: its data directory, and the client it opens."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from . import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..storage.disk.paths import Places
    from ..transport.client.async_client import AsyncClient
    from ..transport.client.client import Client


INTERRUPTED_EXIT_CODE = 130
UNREAD_EXIT_CODE = 141
"""The reader of our output has left: the code of a command that SIGPIPE ends."""

_Name = TypeVar("_Name")
_Found = TypeVar("_Found")


class Call(msgspec.Struct, frozen=True):
    """The options that stand before the command."""

    data: str | None = None

    @property
    def places(self) -> Places:
        """The paths in the data directory."""
        from ..storage.disk import paths  # noqa: PLC0415

        return paths.places(self.data)

    @contextmanager
    def client(self, timeout: float | None = None) -> Iterator[Client]:
        """A client of the daemon; ``timeout`` is the deadline of each call, in seconds."""
        from ..storage import settings  # noqa: PLC0415
        from ..transport.client.client import Client  # noqa: PLC0415 - zmq is not for every command

        deadline = settings.CLIENT_DEADLINE_SECONDS if timeout is None else timeout
        with Client(self.data, timeout=deadline, on_outage=_tell) as client:
            yield client

    def async_client(self) -> AsyncClient:
        """A client for asyncio, for requests that wait for their replies together."""
        from ..transport.client.async_client import AsyncClient  # noqa: PLC0415 - as above

        return AsyncClient(self.data, on_outage=_tell)


def known(
    names: Sequence[_Name], read: Callable[[Sequence[_Name]], Sequence[_Found]]
) -> tuple[list[_Found], int]:
    """What ``read`` finds, and 0; 1 if it does not know some of ``names``.

    Standard error names those. The others are read one by one then.
    """
    from ..storage import errors  # noqa: PLC0415

    try:
        return list(read(names)), 0
    except (errors.UnknownJobError, errors.UnknownFilterError) as error:
        if len(names) > 1:
            parts = [known([name], read)[0] for name in names]
            return [one for part in parts for one in part], 1
        _tell(error.text)
        return [], 1


def _tell(text: str) -> None:
    # A user who has closed the error stream does not want this line.
    with suppress(OSError):
        output.echo(f"ganger: {text}", err=True)
