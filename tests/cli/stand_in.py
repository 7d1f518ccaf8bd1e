"""What stands for the client behind every command, for what a daemon says, and for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest

from ganger.cli import call as call_module
from ganger.cli import main, many
from ganger.storage import errors
from ganger.transport.messages import DaemonInfo, RapiState

INFO = DaemonInfo(
    pid=1,
    version="1",
    protocol=1,
    data="/data",
    started=0.0,
    endpoints=[],
    components=[],
    counts={"running": 1},
    quarantined=[],
    flushes=0,
    memory={},
)
RAPI = RapiState(address="::", port=1, url="https://[::]:1/", is_ready=False)


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def use(patch: pytest.MonkeyPatch, daemon: Any) -> None:
    """Let commands talk to ``daemon``; no request is answered while it ``is_away``."""

    @contextmanager
    def client(_call: object, timeout: float | None = None) -> Iterator[Any]:
        del timeout
        if getattr(daemon, "is_away", False):
            raise errors.DaemonUnreachableError
        yield daemon

    class Awaited(many.InTurn):
        """The same daemon behind a client for asyncio."""

        async def __aenter__(self) -> Self:
            if getattr(daemon, "is_away", False):
                raise errors.DaemonUnreachableError
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

    patch.setattr(call_module.Call, "client", client)
    patch.setattr(call_module.Call, "async_client", lambda _call: Awaited(daemon))


def called(*words: str) -> int:
    """Call the command; its exit code."""
    with pytest.raises(SystemExit) as caught:
        main.main(["--data", "/data", *words])
    return int(caught.value.code or 0)
