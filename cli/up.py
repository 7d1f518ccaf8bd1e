"""``ganger up`` and ``down``: start the daemon in the background, and stop it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import click

from ..storage import errors, settings
from ..storage.alive import process_identity
from ..storage.disk import documents, ownership
from . import choices, first_rapi, output, start_report
from .call import INTERRUPTED_EXIT_CODE
from .daemon_options import DaemonOptions, remembered_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..storage.disk.paths import Places
    from ..transport.messages import DaemonInfo
    from .call import Call
    from .first_rapi import FirstCredentials

_SHORT_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
_LOOK_SECONDS = 0.1


@click.command()
@remembered_options
@click.option(
    "--timeout",
    type=choices.Seconds(),
    metavar="TIME",
    help="Wait at most this long, such as 90 (seconds) or 5m; without it, for as long as the start "
    "takes.",
)
@click.pass_obj
def up(
    call: Call,
    *,
    options: DaemonOptions,
    changes: Callable[[], list[str]],
    timeout: float | None,
) -> int:
    """Start the daemon in the background; return when it is ready.

    The options of the last start still hold: `--rapi` undoes `--no-rapi`, and --forget all of them.
    Harmless when the daemon runs already. Its messages go to daemon.log in the data directory. A
    long start shows on standard error how far it is.

    Exit code 1 also if the daemon that runs has other options than those given; standard error
    names them. Exit code 70: the daemon cannot listen where it was told to; the line says whether
    it runs.
    """
    places = call.places
    ownership.require_own(places, "up")
    if places.membership.exists():
        start = ownership.command(places, "node up")
        text = f"{places.data} is the data directory of a node; `{start}` starts its daemon"
        raise errors.BadRequestError(text)
    documents.make_data_directory(places.data)
    with _alone(places):
        running = running_pid(places)
        if running is not None:
            info = _require_answer(call, running)
            output.echo(f"The daemon already runs (pid {running}) in {places.data}")
            changed = _tell_changes(places, changes())
            return _tell_closed(info, options) or changed
        _require_free_ports(options)
        for warning in ownership.group_warnings(places):
            output.echo(f"ganger: {warning}", err=True)
        is_kept = start_report.is_kept(sys.stdout)
        if is_kept and not options.no_rapi and not first_rapi.has_users(places):
            output.echo(f"ganger: {first_rapi.NO_USER}", err=True)
        pid, credentials = _start(places, options.words(), timeout)
        output.echo(f"The daemon is ready (pid {pid}) in {places.data}")
        if credentials is not None:
            for line in credentials.lines():
                output.echo(line)
        for text in options.closed_to_users():
            output.echo(f"ganger: {text}", err=True)
        if options.moves_sockets() or not options.no_rapi:
            return _tell_closed(_settled(call, pid), options)
        return 0


def start_node(call: Call) -> int:
    """Start the daemon of a node, unless it runs already."""
    places = call.places
    with _alone(places):
        running = running_pid(places)
        if running is not None:
            _require_answer(call, running)
            output.echo(f"The node daemon already runs (pid {running}) in {places.data}")
            return 0
        pid, _ = _start(places, DaemonOptions(no_rapi=True).words())
        output.echo(f"The node daemon is ready (pid {pid}) in {places.data}")
        return 0


def _require_free_ports(options: DaemonOptions) -> None:
    """Raise `OperatorError` if something else listens where the daemon is told to listen."""
    places = []
    if options.rapi_port is not None and not options.no_rapi:
        places.append(("--rapi-port", options.rapi_address, options.rapi_port))
    if options.remote is not None:
        host, _, number = options.remote.removeprefix("tcp://").rpartition(":")
        if number.isdecimal() and int(number):
            places.append(("--remote", host.strip("[]"), int(number)))
    for option, address, port in places:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("" if address == "*" else address, port))
                probe.listen(1)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    # The daemon says what is wrong with the address.
                    continue
                text = f"{option}: something else listens at {address}, port {port} already"
                raise errors.OperatorError(f"{text}; no daemon was started") from error


def _tell_changes(places: Places, changes: list[str]) -> int:
    """Say which options a daemon that runs already does not follow; the exit code for that."""
    if not changes:
        return 0
    words = shlex.join(changes)
    down, again = (ownership.command(places, one) for one in ("down", f"up {words}"))
    output.echo(f"ganger: {words} has no effect on it; for that: {down} && {again}", err=True)
    return errors.GangerError.exit_code


def _settled(call: Call, pid: int) -> DaemonInfo:
    """What the daemon says as soon as the remote API serves or cannot: its process starts later.

    If that takes long, what the daemon says then.
    """
    deadline = time.monotonic() + _ANSWER_SECONDS
    while True:
        info = _require_answer(call, pid)
        is_settled = info.rapi is None or info.rapi.is_ready or info.rapi.problem
        if is_settled or time.monotonic() >= deadline:
            return info
        select.select([], [], [], _LOOK_SECONDS)


def _tell_closed(info: DaemonInfo, options: DaemonOptions) -> int:
    """Say where the daemon does not listen although it should; the exit code for that."""
    problems = []
    if info.rapi is not None and info.rapi.problem and not options.no_rapi:
        url = info.rapi.url
        problem = f"{info.rapi.problem}; the daemon goes on trying"
        problems.append(f"the remote API is not served at {url}: {problem}")
    problems += [
        f"{one.protocol} is not served: {one.problem}" for one in info.sockets if one.problem
    ]
    for problem in problems:
        output.echo(f"ganger: {problem}", err=True)
    return errors.OperatorError.exit_code if problems else 0


def _require_answer(call: Call, pid: int) -> DaemonInfo:
    """What the daemon says that holds the queue. `DaemonUnreachableError`: it says nothing."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        try:
            with call.client(left) as client:
                return client.info()
        except errors.DaemonUnreachableError:
            # It may be starting, or restoring its deleted socket file.
            select.select([], [], [], min(_LOOK_SECONDS, left))
        except errors.TryAgainError:
            break
    raise errors.DaemonUnreachableError(
        f"a daemon (pid {pid}) holds the queue in {call.places.data}, but does not answer; it may "
        "still be starting. If that does not change, see daemon.log there, and end it by its pid"
    )


@contextlib.contextmanager
def _alone(places: Places) -> Iterator[None]:
    """One `ganger up` at a time: the others wait, and find that the daemon runs."""
    with documents.storage_errors(places.data):
        descriptor = os.open(places.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _start(
    places: Places, options: list[str], seconds: float | None = None
) -> tuple[int, FirstCredentials | None]:
    """Start it detached; its pid when it is ready, and the credentials that it has made.

    `GangerError` with the daemon's reason if it fails; `DeadlineError` after ``seconds``, or if it
    tells of no progress, while it goes on.
    """
    reader, writer = os.pipe()
    command = [sys.executable, "-P", "-m", "ganger.cli.main", "--data", str(places.data)]
    unseen = start_report.WITHOUT_SECRETS if start_report.is_kept(sys.stdout) else ""
    with os.fdopen(documents.open_to_append(places.data / "daemon.out"), "ab") as out:
        process = subprocess.Popen(
            [*command, "daemon", *options],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=[writer],
            env={
                **os.environ,
                start_report.READY_VARIABLE: f"{writer}{start_report.WITH_PROGRESS}{unseen}",
            },
            cwd="/",
        )
    os.close(writer)
    ended = process_identity.open_pidfd(process.pid)
    progress = start_report.Progress()
    try:
        word = start_report.await_word(reader, ended, seconds, progress)
    except KeyboardInterrupt:
        _end_again(process, places)
        raise click.exceptions.Exit(INTERRUPTED_EXIT_CODE) from None
    except start_report.NotReady as late:
        doing = f" ({progress.last})" if progress.last else ""
        raise errors.DeadlineError(
            f"the daemon (pid {process.pid}) is still starting{doing}, and {late}; it goes on; "
            f"see `{ownership.command(places, 'status')}` and {places.log}"
        ) from None
    finally:
        os.close(reader)
        os.close(ended)
    code, _, text = word.partition(" ")
    if code == "ready":
        return process.pid, first_rapi.read(text)
    if code.isdecimal():
        output.echo(f"ganger: {text}", err=True)
        raise click.exceptions.Exit(int(code))
    raise errors.OperatorError(_died(process, places, progress.last))


def _died(process: subprocess.Popen[bytes], places: Places, doing: str) -> str:
    """The text about a daemon that ended without a word while it was starting."""
    how = "told of no reason"
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = process.wait(_SHORT_SECONDS)
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was ended by signal {-code} ({signal.strsignal(-code) or 'unknown'})"
    at = f", while {doing}" if doing else ""
    return (
        f"the daemon did not start: it {how}{at}; see {places.data}/daemon.out, and check the "
        f"directory: {ownership.command(places, 'fsck')}"
    )


def _end_again(process: subprocess.Popen[bytes], places: Places) -> None:
    """End the daemon that the interrupted call has started."""
    process.terminate()
    try:
        process.wait(settings.STOP_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        end = f"the daemon (pid {process.pid}) still starts; end it with "
        text = f"{end}`{ownership.command(places, 'down')}`"
    else:
        text = f"no daemon runs in {places.data}"
    output.echo(f"\nganger: interrupted; {text}", err=True)


@click.command()
@click.option(
    "--timeout",
    type=choices.Seconds(),
    metavar="TIME",
    default=30.0,
    show_default="30 seconds",
    help="How long to wait for the end.",
)
@click.pass_obj
def down(call: Call, timeout: float) -> None:
    """Stop the daemon. Running jobs go on, and the next daemon takes them over.

    Harmless when no daemon runs.
    """
    places = call.places
    pid = running_pid(places)
    if pid is None:
        output.echo(f"No daemon runs in {places.data}")
        return
    try:
        process = process_identity.open_pidfd(pid)
    except ProcessLookupError:
        process = None
    active = 0
    try:
        with call.client(timeout) as client:
            active = client.info().counts.get("running", 0)
            client.stop()
    except errors.DaemonUnreachableError:
        # It does not listen yet, or its endpoint file was deleted.
        _ask_by_signal(process, places, pid)
    if process is not None:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        ended = poll.poll(timeout * 1_000)
        os.close(process)
        if not ended:
            raise errors.DeadlineError(f"the daemon (pid {pid}) has not ended in {timeout:g} s")
    goes_on = "1 running job goes on" if active == 1 else f"{active} running jobs go on"
    output.echo(f"The daemon has stopped; {goes_on}" if active else "The daemon has stopped")


def _ask_by_signal(process: int | None, places: Places, pid: int) -> None:
    """Send SIGTERM to the process that holds the queue, if ``process`` still refers to it."""
    if process is not None and running_pid(places) == pid:
        try:
            signal.pidfd_send_signal(process, signal.SIGTERM)
        except PermissionError as error:
            text = f"the daemon (pid {pid}) does not answer, and this user may not end it"
            raise errors.NotAllowedError(text) from error
        except ProcessLookupError:
            return


def running_pid(places: Places) -> int | None:
    """The pid of the daemon that holds the queue directory; None if no daemon does.

    `StorageError`, with the owner, if this user may not read it.
    """
    from ..storage.alive import lock_files  # noqa: PLC0415

    path = places.queue / "lock"
    ownership.require_readable(path)
    return lock_files.holder(path)
