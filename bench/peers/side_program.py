"""The program that runs one side in the environment of its library.

It reads commands from its standard input, one JSON object per line, and writes one line for each:
``{"found": ...}``, ``{"missing": "..."}`` or ``{"error": "..."}``.
It stops its servers and workers when its input ends or the program that started it has died.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import servers, steps

if TYPE_CHECKING:
    from .side import Client, Side

WARM_UP = 10
PR_SET_PDEATHSIG = 1


class Session:
    """One side from its start to its stop."""

    def __init__(self, library: str, variant: str, folder: str) -> None:
        self._module = f"bench.peers.{library}_side"
        self.side: Side = importlib.import_module(self._module).Side(variant, Path(folder))
        self._client: Client | None = None

    def perform(self, command: dict[str, Any]) -> object:
        """Carry out one command."""
        match command["do"]:
            case "start":
                return self._start()
            case "idle":
                return steps.idle(self.client, command["count"], command["pause_seconds"])
            case "throughput":
                return steps.throughput(self.client, command["count"])
            case "submissions":
                return steps.submissions(self.client, command["count"])
            case "crowd":
                return steps.crowd(self._module, command["clients"], command["count"])
            case "listing":
                return steps.listing(self.client, command["count"])
            case other:
                raise ValueError(f"no such command: {other}")

    @property
    def client(self) -> Client:
        """The client of this process, connected when it is needed first."""
        if self._client is None:
            client: Client = importlib.import_module(self._module).Client()
            self._client = client
        return self._client

    def _start(self) -> str:
        versions = self.side.start()
        self.client.wait_all(self.client.submit_many(WARM_UP))
        return versions

    def stop(self) -> None:
        """Close the client, stop servers and workers."""
        try:
            if self._client is not None:
                self._client.close()
        finally:
            self.side.stop()


def main() -> None:
    """Answer commands until there are no more."""
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # A step may take minutes; the end of our input is seen only after it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    session = None
    try:
        for line in sys.stdin:
            try:
                session = session or Session(*sys.argv[1:])
                answer = {"found": session.perform(json.loads(line))}
            except servers.MissingError as error:
                answer = {"missing": str(error)}
            except Exception as error:  # noqa: BLE001 - the row of this side tells it
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if session is not None:
            session.stop()


if __name__ == "__main__":
    main()
