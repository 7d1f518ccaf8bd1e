"""Commands of Ganger, and the daemons that they start, forked from a process that is warm.

A fresh interpreter imports Ganger for longer than most commands work, and the tests start
thousands. A warm program is the real one: a process of its own that runs the same ``main`` with
its own arguments, environment, folder, streams and limit of open files. What differs is in
docs/decisions/tests-share-the-processors.md, and what must start cold.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REQUEST_BYTES_MAX = 150_000
ROOM = " " * 4000
"""An argument of the template: where its children show their own."""

_MATTERS = ("PYTHON", "COVERAGE", "LANG", "LC_", "LD_", "TZ", "MALLOC", "GLIBC")
"""Variables that a process reads at its start: a warm one has read the template's."""

_environment = dict(os.environ)
"""The template's: what tests change later matters to the programs alone."""

_template: tuple[int, subprocess.Popen[bytes], socket.socket] | None = None
_lock = threading.Lock()


def can_begin(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a program with this environment may come from the template."""
    size = sum(map(len, words)) + sum(len(name) + len(value) for name, value in environment.items())
    is_counted = any(name.startswith("COVERAGE_") for name in environment)
    return (
        not is_counted
        and size < REQUEST_BYTES_MAX // 8
        and _start(environment) == _start(_environment)
    )


def _start(environment: Mapping[str, str]) -> dict[str, str]:
    # pytest changes its own variable all the time.
    return {name: value for name, value in environment.items() if name.startswith(_MATTERS)}


def run(
    words: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    text: str | None,
    seconds: float,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with captured text; ``folder`` is what `end` calls the program by."""
    with contextlib.ExitStack() as stack:
        out, error, given = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        if text is not None:
            given.write(text.encode())
            given.seek(0)
        reader, writer = os.pipe()
        told = stack.enter_context(os.fdopen(reader, "rb", buffering=0))
        request = {
            "words": list(words),
            "environment": dict(environment),
            "folder": os.fspath(folder),
            "cwd": os.getcwd(),
            "umask": _umask(),
            "files": resource.getrlimit(resource.RLIMIT_NOFILE),
            "numbers": [0, 1, 2],
            "kind": "command",
        }
        stdin = 0 if text is None else given.fileno()
        with os.fdopen(writer, "wb") as pipe:
            streams = [stdin, out.fileno(), error.fileno(), pipe.fileno()]
            with _lock:
                socket.send_fds(_link(), [json.dumps(request).encode()], streams)
        status = _status(told.fileno(), words, seconds)
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess(
            list(words), status, out.read().decode(), error.read().decode()
        )


def end(folder: Path) -> int:
    """Kill and reap every program that the template has for ``folder``; how many there were."""
    with _lock:
        if not _is_ours():
            return 0
        link = _link()
        link.send(json.dumps({"end": os.fspath(folder)}).encode())
        return int(link.recv(16))


def _umask() -> int:
    """This process's umask, read without changing it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("Umask:")[2].split(maxsplit=1)[0], 8)


def _status(told: int, words: Sequence[str], seconds: float) -> int:
    """The exit status, once the program has ended; kills it after so many ``seconds``."""
    deadline = time.monotonic() + seconds
    said = b""
    while said.count(b"\n") < 2:
        if not select.select([told], [], [], max(0.0, deadline - time.monotonic()))[0]:
            os.kill(int(said.split()[0]), signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(words), seconds)
        part = os.read(told, 100)
        assert part, "the template of warm programs has ended"
        said += part
    return int(said.split()[1])


def _link() -> socket.socket:
    """The link to this process's template, which begins with the first request."""
    global _template  # noqa: PLW0603 - one for each process that tests
    if not _is_ours():
        if _template is not None:
            # It has ended, or belongs to the process of which this one is a fork.
            _template[2].close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = str(Path(__file__).with_name("warm_template.py"))
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", program, str(theirs.fileno()), ROOM],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=_environment,
            )
        _template = os.getpid(), process, ours
    assert _template is not None
    return _template[2]


@atexit.register
def _leave() -> None:
    """The template ends when nobody is left who could ask it."""
    if _is_ours():
        assert _template is not None
        _, process, link = _template
        link.close()
        process.wait()


def _is_ours() -> bool:
    """Whether there is a template, and this process is no fork of the one that has it."""
    if _template is None or _template[0] != os.getpid():
        return False
    # A test may have ended it: nobody's fault, and the next request begins another one.
    return _template[1].poll() is None
