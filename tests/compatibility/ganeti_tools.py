"""Ganeti's own command line tools, unmodified, in a private mount namespace.

Below ``/run``, ``/var/lib`` and ``/var/log`` they see folders of the test, so that the paths which
they were built with (``/var/run/ganeti/socket/ganeti-query`` ...) lead there. The machine's own
folders are neither read nor changed. `make test` unpacks the tools below ``.ganeti/``.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import pytest
from tests.faults.harness import Daemon
from tests.system.ganeti.ganeti_stub import GANETI, PACKAGES, PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).parent / "data"
STARTER = Path(__file__).with_name("ganeti_tool_starter.py")
SOCKET = "ganeti/socket/ganeti-query"
"""Where LuxiD's socket is, below ``/var/run``."""

HIDDEN = {"run": "/run", "lib": "/var/lib", "log": "/var/log"}
"""The folders below the test's root, and what they lie over in the namespace."""

WRITERS = 65_534
"""The group whose members may do everything with the daemon."""

SECONDS = 60.0

MASTER = "node1.example.com"
"""The name of the machine in the namespace: the tools ask only on the master again."""

_MOUNTS = "\n".join(
    [
        "set -e",
        f"hostname {MASTER}",
        *(f'mount --bind "$1/{name}" "{path}"' for name, path in HIDDEN.items()),
    ]
)
_INSIDE = f'{_MOUNTS}\nshift\nexec "$@"'


class Finished(NamedTuple):
    """How a tool ended."""

    code: int
    stdout: str
    stderr: str


def good(done: Finished) -> str:
    """What a command printed, which must succeed without a word on standard error."""
    assert (done.code, done.stderr) == (0, ""), done
    return done.stdout


def unmet(code: str, text: str) -> Finished:
    """How a tool ends that got an OpPrereqError."""
    head = "Failure: prerequisites not met for this operation:"
    return Finished(1, "", f"{head}\nerror type: {code}, error details:\n{text}\n")


class Tool:
    """One tool on its way."""

    def __init__(self, name: str, send: Callable[[list[int]], None]) -> None:
        self.name = name
        pipes = [os.pipe() for _ in range(4)]
        self.stdin: IO[bytes] = open(pipes[0][1], "wb", buffering=0)  # noqa: SIM115
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1], pipes[3][1]]
        try:
            send(theirs)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._said = {pipes[number][0]: bytearray() for number in (1, 2, 3)}
        self._texts = list(self._said.values())
        self._selector = selectors.DefaultSelector()
        for descriptor in self._said:
            self._selector.register(descriptor, selectors.EVENT_READ)

    @property
    def stdout(self) -> str:
        """What the tool has printed so far."""
        return self._texts[0].decode()

    def until(self, is_reached: Callable[[Self], bool], seconds: float = SECONDS) -> None:
        """Read until this holds, or the tool has ended; `AssertionError` if neither comes."""
        deadline = time.monotonic() + seconds
        while self._selector.get_map() and not is_reached(self):
            events = self._selector.select(deadline - time.monotonic())
            assert events, f"{self.name} neither ends nor goes on after {self._texts}"
            for key, _ in events:
                chunk = os.read(key.fd, 65_536)
                self._said[key.fd] += chunk
                if not chunk:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)

    def until_printed(self, text: str) -> None:
        """Wait until the tool has printed this."""
        self.until(lambda tool: text in tool.stdout)
        assert text in self.stdout, self._texts

    def finished(self, seconds: float = SECONDS) -> Finished:
        """Wait for the end of the tool."""
        self.stdin.close()
        self.until(lambda _: False, seconds)
        stdout, stderr, code = (text.decode() for text in self._texts)
        assert code, f"{self.name} was not started"
        return Finished(int(code), stdout, stderr)


class Tools:
    """Starts tools inside one namespace. ``root`` has a short path: a socket lies below it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.socket = root / "run" / SOCKET
        for name in HIDDEN:
            (root / name / "ganeti").mkdir(parents=True)
        self.socket.parent.mkdir(mode=0o755)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*inside(root), str(PYTHON), "-W", "ignore", str(STARTER), str(GANETI)],
                env=environment(),
                stdin=theirs.fileno(),
            )
        self._asking = ours
        self._asking.settimeout(SECONDS)
        assert self._asking.recv(100) == b"imported"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The starter ends when nobody can ask it any more, and what it has started with it.
        self._asking.close()
        self._process.wait(SECONDS)

    def start(
        self,
        tool: str,
        *arguments: str | Path,
        user: tuple[int, int] | None = None,
    ) -> Tool:
        """Start ``gnt-...``, or a script at a path; ``user``: the numbers of user and group."""
        request = {"words": [str(GANETI / tool), *map(str, arguments)], "user": user}
        document = json.dumps(request).encode()
        return Tool(tool, lambda fds: _sent(self._asking, document, fds))

    def run(self, tool: str, *arguments: str | Path, **how: Any) -> Finished:
        """Run a tool until it ends."""
        return self.start(tool, *arguments, **how).finished()

    def log(self) -> str:
        """What the tools have written into their log."""
        path = self.root / "log" / "ganeti" / "commands.log"
        with contextlib.suppress(FileNotFoundError):
            return path.read_text()
        return ""


@contextlib.contextmanager
def served() -> Iterator[tuple[Tools, Daemon]]:
    """A daemon on what a real Ganeti left, and its tools; skips where they cannot run."""
    reason = problem()
    if reason:
        pytest.skip(reason)
    # A short path, for the socket.
    with tempfile.TemporaryDirectory(prefix="gnt-") as folder, Tools(Path(folder)) as tools:
        rights = ["--luxi-group", str(WRITERS)] if os.geteuid() == 0 else []
        path = ["--luxi-socket", str(tools.socket), "--luxi-anonymous-reads"]
        daemon = Daemon(tools.root, *path, *rights)
        daemon.data.mkdir(mode=0o700)
        config = json.loads((DATA / "config.data").read_text())
        config["filters"] = {}
        config["cluster"]["predictive_queue"] = {"holds_back": False}
        daemon.places.config.write_text(json.dumps(config))
        daemon.places.config.chmod(0o600)
        shutil.copytree(DATA / "queue", daemon.places.queue)
        # What the tools read beside the socket.
        ours = tools.root / "lib" / "ganeti"
        ours.rmdir()
        ours.symlink_to(daemon.places.ssconf)
        with daemon:
            wconfd = tools.socket.with_name("ganeti-wconfd")
            wconfd.symlink_to(daemon.places.wconfd_socket)
            yield tools, daemon


def inside(root: Path) -> list[str]:
    """What stands before a command that is to run in a namespace of its own, on these folders."""
    return [*_unshare(), "sh", "-c", _INSIDE, "sh", str(root)]


def environment() -> dict[str, str]:
    """The environment of the tools, which finds Ganeti's modules."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGES), "LANG": "C.UTF-8"}


def problem() -> str:
    """Why the tools cannot run here; empty if they can."""
    if not GANETI.is_dir():
        return "needs Ganeti's tools (make test unpacks them from Debian's package ganeti-3.0)"
    if not PYTHON.exists():
        return f"Ganeti's tools need {PYTHON}"
    for path in HIDDEN.values():
        if GANETI.resolve().is_relative_to(Path(path).resolve()):
            return f"this checkout lies below {path}, which the tools must not see"
    missing = [name for name in ("unshare", "mount", "hostname") if shutil.which(name) is None]
    if missing:
        return f"needs a private mount namespace: there is no {missing[0]}"
    trial = f"set -e; hostname {MASTER}; mount -t tmpfs none /run; mount --bind /run /var/lib"
    tried = subprocess.run(
        [*_unshare(), "sh", "-c", trial],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        return f"needs a private mount namespace: {_last_line(tried.stderr)}"
    tried = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", "import ganeti.client.gnt_cluster, ganeti.cli"],
        env={"PYTHONPATH": f"{GANETI}{os.pathsep}{PACKAGES}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        return f"Ganeti's tools do not run on {PYTHON}: {_last_line(tried.stderr)}"
    return ""


def _unshare() -> list[str]:
    # Root needs no user namespace, and others get the rights to mount only in one. What still runs
    # when the first process ends, ends with its process namespace.
    as_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    private = ["--uts", "--pid", "--fork", "--kill-child", "--mount", "--propagation", "private"]
    return ["unshare", *as_user, *private]


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def _sent(asking: socket.socket, document: bytes, descriptors: list[int]) -> None:
    socket.send_fds(asking, [document], descriptors)
