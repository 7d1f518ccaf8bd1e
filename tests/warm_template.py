"""The template of warm programs: it has imported Ganger, and forks one process for each request.

It is a program of its own (``python -P tests/warm_template.py DESCRIPTOR``) with one thread and no
socket of Ganger's. Each child becomes the program that was asked for: it gets its own session if
asked, its streams, environment and arguments, and calls the same ``main`` as ``python -m`` does.
`tests.warm_starts` asks.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

# The daemon first: it keeps its logging library from loading what the commands load below.
from ganger import cli
from ganger.cli import daemon as daemon_command
from ganger.storage.alive import process_identity

if TYPE_CHECKING:
    from collections.abc import Callable

OUT_OF_THE_WAY = 500
"""Descriptors that a child gets lie here until it has closed those of the template."""

REQUEST_BYTES_MAX = 150_000
DESCRIPTORS_MAX = 8
UNKNOWN_STATUS = -1
LATE = (
    "ganger.transport.client.client", "rich.box", "rich.console", "rich.table", "rich.text", "yaml",
)  # fmt: skip
"""Modules that commands import when they run."""


class Child(Exception):  # noqa: N818 - no error
    """This process is a child: it leaves the template's loop to become a program."""

    def __init__(self, request: dict[str, Any], descriptors: list[int], link: int) -> None:
        super().__init__()
        self.request = request
        self.descriptors = descriptors
        self.link = link


class Template:
    """Waits for requests on any of its links, and for the ends of its children."""

    def __init__(self, link: socket.socket) -> None:
        self._first = link
        self._links = {link.fileno(): link}
        self._children: dict[int, tuple[int, str, int]] = {}
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)

    def serve(self) -> None:
        """Serve until the first link is closed; raises `Child` in each child."""
        while self._first.fileno() in self._links:
            # One at a time: what it leads to may give the numbers of the others a new meaning.
            descriptor, _ = self._poll.poll()[0]
            if descriptor in self._children:
                self._reap(descriptor)
            else:
                self._take(self._links[descriptor])

    def _take(self, link: socket.socket) -> None:
        data, descriptors, _, _ = socket.recv_fds(link, REQUEST_BYTES_MAX, DESCRIPTORS_MAX)
        if not data:
            self._poll.unregister(link)
            del self._links[link.fileno()]
            link.close()
            return
        request = json.loads(data)
        if "end" in request:
            link.send(b"%d" % self._end(request["end"]))
            return
        self._fork(request, descriptors)

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """The last descriptor that came is a pipe: it gets the pid now, and the status later."""
        *given, told = descriptors
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            raise Child(request, given, theirs.detach())
        theirs.close()
        for descriptor in given:
            os.close(descriptor)
        self._links[ours.fileno()] = ours
        self._poll.register(ours, select.POLLIN)
        pidfd = process_identity.open_pidfd(pid)
        self._children[pidfd] = pid, request["folder"], told
        self._poll.register(pidfd, select.POLLIN)
        _tell(told, pid)

    def _reap(self, pidfd: int) -> None:
        pid, _, told = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        _tell(told, os.waitstatus_to_exitcode(status))
        os.close(told)

    def _end(self, folder: str) -> int:
        found = [pidfd for pidfd, (_, of, _) in self._children.items() if of == folder]
        for pidfd in found:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            self._reap(pidfd)
        return len(found)


def _tell(descriptor: int, number: int) -> None:
    # Who asked may have left.
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, b"%d\n" % number)


class WarmPopen(subprocess.Popen[bytes]):
    """Instead of `subprocess.Popen` in `ganger up`: the daemon comes from the template.

    Everything else that a program starts is started as ever.
    """

    link: socket.socket
    folder: str

    def __init__(self, args: Any, **options: Any) -> None:
        if list(args[1:4]) != ["-P", "-m", "ganger.cli.main"]:
            super().__init__(args, **options)
            return
        assert options.pop("start_new_session")
        assert options.pop("stdin") == subprocess.DEVNULL
        out, error, kept = options.pop("stdout"), options.pop("stderr"), options.pop("pass_fds")
        reader, writer = os.pipe()
        with open(os.devnull, "rb") as nothing, os.fdopen(reader, "rb") as told:
            numbers = {0: nothing.fileno(), 1: out.fileno(), 2: error.fileno()}
            numbers |= {number: number for number in kept}
            request = {
                "words": list(args),
                "environment": options.pop("env"),
                "folder": self.folder,
                "cwd": options.pop("cwd"),
                "files": resource.getrlimit(resource.RLIMIT_NOFILE),
                "numbers": list(numbers),
                "is_daemon": True,
            }
            assert not options, "`ganger up` starts the daemon otherwise: so must this"
            request["umask"] = os.umask(0o077)
            os.umask(request["umask"])
            data = json.dumps(request).encode()
            socket.send_fds(self.link, [data], [*numbers.values(), writer])
            os.close(writer)
            self.pid = int(told.readline())
        self.returncode = None

    def __del__(self) -> None:
        """It is no child of this process."""


def become(child: Child) -> NoReturn:
    """Be the program that was asked for."""
    request = child.request
    high = [
        fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY) for number in child.descriptors
    ]
    link = fcntl.fcntl(child.link, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
    os.closerange(0, OUT_OF_THE_WAY)
    for descriptor, number in zip(high, request["numbers"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    resource.setrlimit(resource.RLIMIT_NOFILE, request["files"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.orig_argv[:] = request["words"]
    if request["is_daemon"]:
        os.close(link)
        os.setsid()
    else:
        WarmPopen.link = socket.socket(fileno=link)
        WarmPopen.folder = request["folder"]
        subprocess.Popen = WarmPopen  # type: ignore[assignment, misc]
    # python [-P] -m MODULE WORDS...
    place = request["words"].index("-m") + 1
    module = importlib.import_module(request["words"][place])
    sys.argv[:] = [str(module.__file__), *request["words"][place + 1 :]]
    if request["is_daemon"]:
        module.main()
        raise SystemExit
    _leave(_status_of(module.main))


def _status_of(main: Callable[[], None]) -> int:
    """Run a command; its exit code."""
    try:
        main()
    except SystemExit as error:
        # Ganger ends with numbers; a text would be a message of the interpreter.
        return int(error.code or 0)
    except BaseException:  # noqa: BLE001 - the interpreter would print it, too
        traceback.print_exc()
        return 1
    return 0


def _leave(status: int) -> NoReturn:
    """End as the interpreter does, but leave the modules as they are.

    To take them apart is half of what a warm command costs: it writes to every page that it shares
    with the template.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def load() -> None:
    """Import what the programs import at their start, and when they run."""
    for found in pkgutil.iter_modules(cli.__path__, "ganger.cli."):
        if not found.ispkg:
            importlib.import_module(found.name)
    for name in (*daemon_command._IMPORTED_LATE, *LATE):
        importlib.import_module(name)


if __name__ == "__main__":
    # It may have been started with fewer; each child gets the limit of who asked.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    load()
    gc.collect()
    # A child's collections must not walk through all that: the kernel would copy it.
    gc.freeze()
    found: Child | None = None
    try:
        Template(socket.socket(fileno=int(sys.argv[1]))).serve()
    except Child as raised:
        found = raised
    if found is not None:
        become(found)
