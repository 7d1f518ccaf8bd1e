"""What stands for the client behind every command, and for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ganger.cli import call as call_module
from ganger.storage import errors


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

    patch.setattr(call_module.Call, "client", client)
