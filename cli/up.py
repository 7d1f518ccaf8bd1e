"""``ganger up``, ``down`` and ``status``: the daemon as a whole."""

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
import msgspec

from ..storage import errors, settings, wording
from ..storage.alive import process_identity
from ..storage.disk import documents, ownership
from . import choices, first_rapi, monitoring, output, start_report
from .call import INTERRUPTED_EXIT_CODE
from .daemon_options import DaemonOptions, recorded, remembered_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..storage.disk.paths import Places
    from ..transport.client.client import Client
    from ..transport.messages import DaemonInfo, LimitsRead, RapiState, SocketState
    from .call import Call
    from .first_rapi import FirstCredentials

NOT_RUNNING_EXIT_CODE = 3
_SHORT_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
_WAITING_SECONDS = 2.0
"""The state of the daemon is shown also if its scheduler hangs."""

_LOOK_SECONDS = 0.1


@click.command()
@remembered_options
@click.option(
    "--timeout",
    type=choices.Seconds(),
    metavar="TIME",
    help="Wait at most so long. Without it the command waits as long as the daemon starts and "
    "tells how far it is.",
)
@click.pass_obj
def up(call: Call, *, options: DaemonOptions, given: DaemonOptions, timeout: float | None) -> int:
    """Start the daemon in the background; return when it is ready.

    It starts with the options of its last start, but for those that are given now: --remote of
    yesterday is still there, `--no-rapi` is undone by `--rapi`, and --forget begins afresh.
    Harmless when it runs already. Its messages go to daemon.log in the data directory. A start that
    takes long, because many jobs are pending, shows on standard error how far it is. Exit code 70:
    the daemon runs, but does not listen where it was told to.
    """
    places = call.places
    ownership.require_own(places, "up")
    documents.make_data_directory(places.data)
    with _alone(places):
        running = _running_pid(places)
        if running is not None:
            info = _require_answer(call, running)
            output.echo(f"The daemon already runs (pid {running}) in {places.data}")
            vain = msgspec.structs.replace(given.beyond(recorded(places)), test_hooks=False)
            if vain.words():
                text = f"{shlex.join(vain.words())} has no effect on it; stop it first: ganger down"
                output.echo(f"ganger: {text}", err=True)
            return _tell_closed(info, options)
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
    show_default=True,
    help="How long to wait for the end.",
)
@click.pass_obj
def down(call: Call, timeout: float) -> None:
    """Stop the daemon. Running jobs go on, and the next daemon takes them over.

    Harmless when no daemon runs.
    """
    places = call.places
    pid = _running_pid(places)
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
    if process is not None and _running_pid(places) == pid:
        try:
            signal.pidfd_send_signal(process, signal.SIGTERM)
        except PermissionError as error:
            text = f"the daemon (pid {pid}) does not answer, and this user may not end it"
            raise errors.NotAllowedError(text) from error
        except ProcessLookupError:
            return


@click.command()
@monitoring.options
@output.output_option
@click.pass_obj
def status(
    call: Call,
    *,
    check: bool,
    free_warn: monitoring.Least,
    free_critical: monitoring.Least,
    wait_warn: float | None,
    output_kind: str,
) -> int:
    """Show the daemon's pid, version, endpoints, jobs, components and the disk.

    Exit code 3: none runs; 74: the queue is read-only, because the disk refuses writes, or the disk
    is full; 70: the daemon does not listen where it should.
    """
    places = call.places
    pid = _running_pid(places)
    if check:
        return monitoring.run(
            call, monitoring.Thresholds(free_warn, free_critical, wait_warn), pid=pid
        )
    if pid is None:
        _tell_not_running(call, output_kind)
        raise click.exceptions.Exit(NOT_RUNNING_EXIT_CODE)
    try:
        with call.client(_SHORT_SECONDS) as client:
            info = client.info()
            _show(info, _asked_waiting(client), output_kind, recorded(places))
            if output_kind == "json":
                return _health(info)
            limits = _limits(client, places)
    except errors.DaemonUnreachableError as error:
        text = (
            f"the daemon (pid {pid}) in {places.data} does not answer: it starts or ends, or hangs"
        )
        raise errors.DaemonUnreachableError(f"{text}; see {places.log}") from error
    if limits.running_jobs_possible is not None:
        output.echo(
            f"FEWER RUN SLOTS: {limits.running_jobs_possible} instead of "
            f"{limits.running_jobs_max}; the daemon may open too few files (`ulimit -Hn`)"
        )
    for problem in limits.not_in_force:
        output.echo(f"NOT IN FORCE: {problem}; its default holds")
    return _health(info)


def _health(info: DaemonInfo) -> int:
    """The exit code of `status` for a daemon that answers."""
    if info.is_read_only or info.is_disk_full:
        return errors.StorageError.exit_code
    is_closed = any(one is not None and one.problem for one in (info.rapi, *info.sockets))
    return errors.OperatorError.exit_code if is_closed else 0


def _limits(client: Client, places: Places) -> LimitsRead:
    """Raises `DeadlineError`, which says what hangs: the daemon itself has answered."""
    try:
        return client.limits()
    except errors.DeadlineError as error:
        text = f"the component config_store in {places.data} does not answer: it hangs, or starts"
        raise errors.DeadlineError(f"{text}; see {places.log}") from error


def _tell_not_running(call: Call, output_kind: str) -> None:
    data = call.places.data
    if output_kind == "json":
        output.show_json({"running": False, "data": str(data)})
        return
    start = "ganger up" if call.data is None else ownership.command(call.places, "up")
    output.echo(f"No daemon runs in {data} (start one with `{start}`)")


def _show(
    info: DaemonInfo,
    waiting: Mapping[str, int] | None,
    output_kind: str,
    options: DaemonOptions | None = None,
) -> None:
    given = {} if options is None else options.given()
    if output_kind == "json":
        plain = msgspec.to_builtins(info)
        plain.pop("type", None)
        output.show_json({"running": True, **plain, "waiting": waiting, "options": given})
        return
    lines = {
        "Daemon": f"ganger {info.version}, pid {info.pid}, "
        f"up {output.span(time.time() - info.started)}",
        "Data": info.data,
        "Endpoints": ", ".join(info.endpoints),
        **{one.protocol: _socket_state(one) for one in info.sockets},
        **({"Remote API": rapi_state(info.rapi)} if info.rapi is not None else {}),
        "Jobs": ", ".join(
            f"{count} {name}" for name, count in info.counts.items() if name != "last_id"
        ),
        **({"Waiting": waiting_text(waiting)} if waiting else {}),
        "Processes": "one for many jobs, in turn" if info.reuses_processes else "one for each job",
        **({"Options": shlex.join(options.words())} if options and given else {}),
        "Queue": queue_state(info),
        "Disk": disk_use(info),
        "Last id": str(info.counts.get("last_id", 0)),
        "Memory": ", ".join(
            f"{name} {size / 1_048_576:.0f} MiB" if size else f"{name} unknown"
            for name, size in info.memory.items()
        ),
    }
    for name, text in lines.items():
        output.echo(f"{name + ':':<12}{text}")
    output.echo("Components:")
    for component in info.components:
        state = "ready" if component.is_ready else "not ready"
        times = wording.counted(component.restarts, "time")
        again = f", restarted {times}" if component.restarts else ""
        where = f", in the process {component.process}" if component.process else ""
        output.echo(f"  {component.name:<20}{state}{again}{where}")
    for job_id, why in info.output_dropped.items():
        output.echo(f"Job {job_id}: {why}")
    for name in info.quarantined:
        output.echo(f"Quarantined: {name}")
    for problem in info.opcode_problems:
        output.echo(f"Not loaded: {problem}")


_CAUSES = {
    "dependency": "for other jobs",
    "rule": "held by a rule",
    "limit": "for a rate limit",
    "lock": "for locks, without a process",
    "process": "for locks, with a process",
    "slots": "for a run slot",
    "order": "about to start",
}


def waiting_text(waiting: Mapping[str, int]) -> str:
    """For what how many jobs wait, in words."""
    counts = [(waiting.get(cause, 0), words) for cause, words in _CAUSES.items()]
    return ", ".join(f"{count} {words}" for count, words in counts if count)


def _asked_waiting(client: Client) -> dict[str, int] | None:
    """For what jobs wait; None if the scheduler does not say so soon enough."""
    try:
        return client.waiting(timeout=_WAITING_SECONDS)
    except errors.TryAgainError:
        return None


def _socket_state(one: SocketState) -> str:
    return f"{one.path} NOT OPEN: {one.problem}" if one.problem else one.path


def rapi_state(rapi: RapiState) -> str:
    """Where the remote API listens, and why it does not, in words."""
    times = wording.counted(rapi.restarts, "time")
    again = f" (restarted {times})" if rapi.restarts else ""
    if rapi.is_ready:
        return rapi.url + again
    why = rapi.problem or "it is starting"
    return f"{rapi.url} NOT READY: {why}{again}"


def disk_use(info: DaemonInfo) -> str:
    """What takes how much of the disk, in words."""
    disk = info.disk
    if disk is None:
        return "not measured yet"
    size = wording.size
    parts = (
        f"output {size(disk.output)}, archive {size(disk.archive)}, journal {size(disk.journal)}"
    )
    reserve = f", reserve {size(disk.reserve)}" if disk.reserve else ", no reserve"
    return f"{parts}{reserve}; {size(disk.free)} of {size(disk.total)} free"


def queue_state(info: DaemonInfo) -> str:
    """Whether the queue takes jobs, in words."""
    words = [
        *(
            ["READ-ONLY: the disk refuses writes; no changes are taken"]
            if info.is_read_only
            else []
        ),
        *(
            ["DISK FULL: new jobs wait for space (`ganger job purge`)"]
            if info.is_disk_full and not info.is_read_only
            else []
        ),
        *(["drained: it takes no jobs"] if info.is_drained else []),
    ]
    return "; ".join(words) or "open"


def _running_pid(places: Places) -> int | None:
    """The pid of the daemon that holds the queue directory; None if no daemon does.

    `StorageError`, with the owner, if this user may not read it.
    """
    from ..storage.alive import lock_files  # noqa: PLC0415

    path = places.queue / "lock"
    ownership.require_readable(path)
    return lock_files.holder(path)
