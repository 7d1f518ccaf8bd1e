"""Starts the program of a side, gives it commands, and ends whatever it leaves behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from .processes import ROOT

if TYPE_CHECKING:
    from .catalogue import Peer

ENVIRONMENTS = ROOT / ".peers"
STOP_SECONDS = 30
PR_SET_CHILD_SUBREAPER = 36


class SideError(Exception):
    """A side could not do what it was asked for."""


class SideMissingError(SideError):
    """A side needs something that is not installed."""


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none gets lost."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def end_descendants() -> list[str]:
    """Kill all descendants of this process; return their command lines."""
    ended = []
    while children := psutil.Process().children(recursive=True):
        for child in children:
            try:
                ended.append(" ".join(child.cmdline()) or child.name())
                child.kill()
            except psutil.NoSuchProcess:
                continue
        for child in children:
            # Once its own parent has ended, it is a child of this process.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
    return ended


def interpreter(peer: Peer) -> Path:
    """The Python of the peer's environment; SideError with the reason if it is not installed."""
    if peer.environment is None:
        return Path(sys.executable)
    folder = ENVIRONMENTS / peer.environment
    if not (folder / ".installed").exists():
        problem = folder / "problem"
        lines = problem.read_text().splitlines() if problem.exists() else []
        # pip writes warnings behind the error.
        reason = ([line for line in lines if line.startswith("ERROR")] or lines)[-1:]
        raise SideMissingError(
            f"not installed: {''.join(reason) or 'make bench-peers makes its environment'}"
        )
    return folder / "bin" / "python"


class SideProcess:
    """A running side. Leaving the context stops it, whatever happened."""

    def __init__(self, peer: Peer, folder: Path) -> None:
        self._peer = peer
        self._folder = folder

    def __enter__(self) -> Self:
        program = interpreter(self._peer)
        command = (program, "-m", "bench.peers.side_program", self._peer.library)
        # A group of its own: Ctrl-C reaches us alone, and we stop the side in order.
        with (self._folder / "side.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, self._peer.variant, str(self._folder)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"  {self._peer.title} did not stop in {STOP_SECONDS} s", file=sys.stderr)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            end_descendants()

    def ask(self, do: str, seconds: float, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        """What the side found; SideError if it failed or took longer than ``seconds``."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        line = b""
        end = time.monotonic() + seconds
        try:
            stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            while not line.endswith(b"\n"):
                ready, _, _ = select.select([stdout], [], [], max(0, end - time.monotonic()))
                if not ready:
                    raise SideError(f"{do}: no result within {seconds:.0f} s")
                part = os.read(stdout.fileno(), 1_048_576)
                if not part:
                    raise SideError(f"{do}: its program ended: {self._last_words()}")
                line += part
        except BrokenPipeError as error:
            raise SideError(f"{do}: its program ended: {self._last_words()}") from error
        answer = json.loads(line)
        if "missing" in answer:
            raise SideMissingError(answer["missing"])
        if "error" in answer:
            raise SideError(f"{do}: {' '.join(answer['error'].split())[:300]}")
        return answer["found"]

    def _last_words(self) -> str:
        return "".join((self._folder / "side.log").read_text(errors="replace").splitlines()[-1:])
