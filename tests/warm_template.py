"""The template of warm programs: it has imported Ganger, and forks one process for each request.

It is a program of its own (``python -P tests/warm_template.py DESCRIPTOR``) with one thread and no
socket of Ganger's. Each child becomes the program that was asked for: it gets its own session if
asked, its streams, environment and arguments, and calls the same ``main`` as ``python -m`` does.
`tests.warm_starts` asks.

A daemon's own processes must be its children. So a warm daemon forks them before it begins any
thread; each waits until the daemon starts such a process for the first time. All later ones are
cold.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import io
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

# The daemon first: it keeps its logging library from loading what the commands load below.
from ganger import cli
from ganger.actors.execution import prewarming
from ganger.cli import daemon as daemon_command
from ganger.cli import main as command_line
from ganger.storage import entry_points, settings
from ganger.storage.alive import process_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OUT_OF_THE_WAY = 500
"""Descriptors that a child gets lie here until it has closed those of the template."""

REQUEST_BYTES_MAX = 150_000
DESCRIPTORS_MAX = 8
SPARE_CHILDREN = 3
FORK_SERVER = "ganger.actors.execution.template"
AUTHORITY = "ganger.actors.supervision.authority_process"
REMOTE_API = "ganger.rapi.process"
LATE = (
    "ganger.transport.client.client", "rich.box", "rich.console", "rich.table", "rich.text", "yaml",
    FORK_SERVER, AUTHORITY, REMOTE_API,
)  # fmt: skip
"""Modules that commands import when they run."""


class Child(Exception):  # noqa: N818 - no error
    """This process is a child: it leaves the template's loop to become a program."""

    def __init__(
        self, request: dict[str, Any], descriptors: list[int], link: int | None = None
    ) -> None:
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
        cwd, environment = options.pop("cwd"), options.pop("env")
        assert not options, "`ganger up` starts the daemon otherwise: so must this"
        reader, writer = os.pipe()
        with open(os.devnull, "rb") as nothing, os.fdopen(reader, "rb") as told:
            numbers = {0: nothing.fileno(), 1: out.fileno(), 2: error.fileno()}
            numbers |= {number: number for number in kept}
            request = _request("daemon", args, environment, cwd, list(numbers))
            data = json.dumps({**request, "folder": self.folder}).encode()
            socket.send_fds(self.link, [data], [*numbers.values(), writer])
            os.close(writer)
            self.pid = int(told.readline())
        self.returncode = None

    def __del__(self) -> None:
        """It is no child of this process."""


class WarmServer(subprocess.Popen[bytes]):
    """Instead of `subprocess.Popen` in a daemon: its processes are those that wait for it."""

    waiting: dict[str, list[tuple[int, socket.socket]]]
    """By the module that it will run: pids of children of this process, and the links to them."""

    def __init__(self, args: Any, **options: Any) -> None:
        waiting = self.waiting.get(args[3]) if list(args[1:3]) == ["-P", "-m"] else None
        if not waiting:
            super().__init__(args, **options)
            return
        assert options.pop("stdin") == subprocess.DEVNULL
        cwd, kept = options.pop("cwd"), options.pop("pass_fds")
        assert not options, "a daemon starts its processes otherwise: so must this"
        self.pid, link = waiting.pop()
        self.args, self.returncode = args, None
        self.stdin = self.stdout = self.stderr = None
        # What `poll`, `wait` and `kill` of the class look at.
        self._child_created = True
        self._waitpid_lock = threading.Lock()
        with open(os.devnull, "rb") as nothing, link:
            numbers = {0: nothing.fileno(), 1: 1, 2: 2} | {number: number for number in kept}
            request = _request("server", args, dict(os.environ), cwd, list(numbers))
            # At once: the daemon may give it another limit before it has read the request.
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(self.pid, resource.RLIMIT_NOFILE, request.pop("files"))
            data = json.dumps(request)
            # If somebody has killed it, the daemon finds it ended, as one that is killed later.
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(link, [data.encode()], list(numbers.values()))


def prepare_servers(words: list[str]) -> None:
    """Fork what a daemon with these arguments will need; raises `Child` in each."""
    modules = [FORK_SERVER]
    if "GANGER_TEST_HUB" in os.environ:
        # The hub of nodes begins with the first invitation.
        modules.append(AUTHORITY)
    if "--no-rapi" not in words:
        modules.append(REMOTE_API)
    if "apart" in words:
        modules.append(AUTHORITY)
    WarmServer.waiting = {}
    for module in modules:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            # Nobody may wait in vain for the end of what the daemon, or a link, has open.
            number = fcntl.fcntl(theirs.detach(), fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
            os.closerange(3, OUT_OF_THE_WAY)
            data, descriptors, _, _ = socket.recv_fds(
                socket.socket(fileno=number), REQUEST_BYTES_MAX, DESCRIPTORS_MAX
            )
            if not data:
                os._exit(0)
            raise Child(json.loads(data), descriptors)
        theirs.close()
        WarmServer.waiting.setdefault(module, []).append((pid, ours))
    subprocess.Popen = WarmServer  # type: ignore[assignment, misc]


def _request(
    kind: str, words: Any, environment: dict[str, str], cwd: Any, numbers: list[int]
) -> dict[str, Any]:
    """What a child must know to be a program of this process."""
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "kind": kind,
        "words": list(words),
        "environment": environment,
        "cwd": os.fspath(cwd),
        "umask": umask,
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "numbers": numbers,
    }


def become(child: Child) -> NoReturn:
    """Be the program that was asked for."""
    request = child.request
    high = [
        fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY) for number in child.descriptors
    ]
    if child.link is not None:
        link = fcntl.fcntl(child.link, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
    os.closerange(0, OUT_OF_THE_WAY)
    for descriptor, number in zip(high, request["numbers"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    if "files" in request:
        resource.setrlimit(resource.RLIMIT_NOFILE, request["files"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.orig_argv[:] = request["words"]
    show(request["words"], request["environment"])
    if request["kind"] == "command":
        WarmPopen.link = socket.socket(fileno=link)
        WarmPopen.folder = request["folder"]
        subprocess.Popen = WarmPopen  # type: ignore[assignment, misc]
    elif child.link is not None:
        os.close(link)
    if request["kind"] == "server":
        # A server of the tests has few jobs, and shares what this template has learned.
        settings.SPARE_CHILDREN = SPARE_CHILDREN
        prewarming.DRY_RUNS = 0
    # python [-P] -m MODULE WORDS...
    place = request["words"].index("-m") + 1
    module = importlib.import_module(request["words"][place])
    sys.argv[:] = [str(module.__file__), *request["words"][place + 1 :]]
    if request["kind"] == "daemon":
        os.setsid()
        prepare_servers(request["words"])
    _leave(_status_of(module.main))


def show(words: list[str], environment: dict[str, str]) -> None:
    """Let ``/proc`` show these arguments and variables, as far as the template has room for them.

    The product, and tests, recognise processes by them.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arguments, arguments_end, variables, variables_end = map(int, fields[45:49])
    _write_texts(arguments, arguments_end, words)
    marks_first = sorted(environment.items(), key=lambda one: not one[0].startswith("GANGER"))
    _write_texts(variables, variables_end, [f"{name}={value}" for name, value in marks_first])


def _write_texts(start: int, end: int, texts: list[str]) -> None:
    data = b"".join(os.fsencode(text) + b"\0" for text in texts)[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, data, len(data))


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
    for name, group in vars(entry_points).items():
        if name.isupper() and str(group).startswith("ganger."):
            entry_points.load(group)
    entry_points._problems.clear()
    for kind in _structs(msgspec.Struct):
        # msgspec keeps what it finds out of a class for all decoders to come.
        with contextlib.suppress(TypeError, NameError):
            msgspec.msgpack.Decoder(kind)
    rehearse()


def rehearse() -> None:
    """Let the command line and the classes that it asks note what they find out once."""
    with contextlib.redirect_stdout(io.StringIO()):
        command_line.ganger.main(["--version"], prog_name="ganger", standalone_mode=False)
        for name in ("up", "down", "status", "exec", "daemon", "job list", "job wait"):
            words = [*name.split(), "--help"]
            command_line.ganger.main(words, prog_name="ganger", standalone_mode=False)


def _structs(base: type[Any]) -> Iterator[type[Any]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _structs(kind)


if __name__ == "__main__":
    # It may have been started with fewer; each child gets the limit of who asked.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    load()
    gc.collect()
    # A child's collections must not walk through all that: the kernel would copy it.
    gc.freeze()
    act: Callable[[], None] = Template(socket.socket(fileno=int(sys.argv[1]))).serve
    while True:
        found: Child | None = None
        try:
            act()
        except Child as raised:
            found = raised
        if found is None:
            break
        act = functools.partial(become, found)
