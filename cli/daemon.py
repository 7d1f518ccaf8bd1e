"""``ganger daemon``: starts the supervisor and waits for its end. Only this command runs actors."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import sys
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

import click

from ..actors.processes.machine import end_child_processes
from ..actors.runtime import installed_answers
from ..actors.runtime.actor import start
from ..actors.runtime.host import Host
from ..actors.runtime.rapi_options import RapiOptions
from ..actors.supervision import logs, supervising
from ..actors.supervision.directory_keeper import DirectoryKeeper
from ..actors.supervision.log_writer import LogWriter
from ..actors.supervision.placement import INSTALLED, SUPERVISION, elsewhere, left_out
from ..actors.supervision.supervisor import Shutdown, Supervisor
from ..actors.supervision.watchdog import Watchdog
from ..storage import entry_points, errors, settings
from ..storage.alive import directory_locks, lock_files
from ..storage.cluster.objects import installed_kinds
from ..storage.disk import (
    descriptors,
    documents,
    file_sizes,
    file_systems,
    free_memory,
    ownership,
    paths,
    reserve,
    run_directory,
)
from ..storage.opcodes import catalogue
from ..transport.envelopes import Directory, Envelope
from ..transport.messages import StopRequested
from . import first_rapi, output
from .daemon_options import DaemonOptions, daemon_options, recorded
from .start_report import Announcement

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from ..storage.disk.paths import Places
    from .call import Call
    from .first_rapi import FirstCredentials

_IMPORTED_LATE = ("difflib", "ipaddress", "msgpack", "re2")
"""Modules that libraries import on first use. Later the daemon may lack a descriptor for that."""

RESTARTS_VARIABLE = "GANGER_BEGUN_ANEW"
"""When the daemon replaced its own process: seconds of the system's monotonic clock."""


@click.command()
@daemon_options
@click.pass_obj
def daemon(call: Call, options: DaemonOptions) -> None:
    """Run the daemon in the foreground until it is stopped.

    Prints a line when it is ready and when it has stopped. Stops on SIGTERM or SIGINT (Ctrl-C),
    and by `ganger down`; jobs that run go on, and the next daemon takes them over.
    """
    places = call.places
    announce = Announcement(places)
    try:
        run(places, announce, options)
    except errors.GangerError as error:
        hinted = _with_hint(error, places)
        announce.failed(hinted)
        raise hinted from error.__cause__
    announce.stopped()


def _with_hint(error: errors.GangerError, places: Places) -> errors.GangerError:
    """The error, with a hint where `ganger fsck` may say more about it."""
    kinds = errors.StorageError, errors.DataDirectoryError, errors.RestartLimitError
    is_other = isinstance(error, errors.NotOwnerError)
    if not isinstance(error, kinds) or is_other or not places.queue.is_dir():
        return error
    return type(error)(f"{error.text}; check the directory: {ownership.command(places, 'fsck')}")


def run(places: Places, announce: Announcement, options: DaemonOptions) -> None:
    """Run the daemon for this data directory until it stops or fails."""
    descriptors_before = _prepare_process(places)
    budget = descriptors.own_budget(is_remote=options.remote is not None, wishes=INSTALLED.wishes())
    ownership.require_own(places, "daemon", announce.files_checked)
    with ExitStack() as stack:
        _prepare(places)
        directory_lock = directory_locks.DirectoryLock(places.queue / "lock")
        stack.callback(directory_lock.release)
        _find_room(places)
        places = _with_run_directory(places)
        writer, log = _open_log(places, stack)
        announce.log = log
        _warn(options, places, announce, log)
        rapi = _rapi_of(options)
        credentials = None if rapi is None else _first_user(places, rapi, announce)
        stack.callback(first_rapi.forget, places, credentials)
        _remove_dead_lock_files(places)
        daemon_lock = lock_files.create(places.lock_files, lock_files.daemon_stem(time.time()))
        stack.callback(daemon_lock.remove)
        keeper, shutdown = DirectoryKeeper(places, directory_lock, log), Shutdown()
        host = _host(
            options,
            places,
            log=log,
            daemon_lock=daemon_lock,
            rapi=rapi,
            directory_descriptor=directory_lock.directory_descriptor,
            budget=budget,
            descriptors_before=descriptors_before,
            note_start=announce.progress,
        )

        def ready() -> None:
            keeper.announce(host.endpoints)
            if credentials is not None:
                state = host.rapi_states[0]
                credentials.url, credentials.problem = state.url, state.problem
            _record(options, places, announce, log)
            reserve.keep_for_start(places.start_reserve)
            announce.ready(credentials)

        _supervise(host, shutdown, ready, Watchdog(host, shutdown, keeper, options.hung_after))
        _go_at_once(host, writer, shutdown, announce)
        keeper.withdraw()
        daemon_lock.remove()
        _tidy(places)
        log.info("stopped")
        if shutdown.error is not None:
            raise shutdown.error


def _find_room(places: Places) -> None:
    """Give this start the space that the last daemon kept for it, and the journal its folder."""
    reserve.give_to_start(places.start_reserve)
    documents.make_directory(places.journal)
    file_systems.write_in_place(places.journal)


def _with_run_directory(places: Places) -> Places:
    """The places with a directory for sockets, which is made; what writes have left is removed."""
    places = run_directory.with_room(places)
    documents.make_private_directory(places.run)
    documents.remove_temporaries(places.data, lambda _: False)
    return places


def _host(options: DaemonOptions, places: Places, **more: Any) -> Host:  # noqa: ANN401 - as `Host`
    """What the components share; what is not made of the options is given."""
    return Host(
        directory=Directory(),
        places=places,
        remote_endpoint=options.remote,
        is_node=places.membership.exists(),
        has_test_hooks=options.test_hooks,
        hung_after_seconds=options.hung_after,
        reuses_processes=not options.fresh_processes,
        keeps_reserve=True,
        rapi_states=[],
        master_states=[],
        listener_options=options.listener_options(),
        listener_states={},
        elsewhere=elsewhere(options.placement, places),
        processes={},
        endpoints=[],
        **more,
    )


def _prepare_process(places: Places) -> int:
    """Set what holds for the whole process; the limit of descriptors that it had before."""
    sys.setswitchinterval(settings.SWITCH_INTERVAL_SECONDS)
    if places.membership.exists():
        # On a host, memory is for others; all output of its tasks passes its daemon.
        free_memory.keep_in_one_place()
    descriptors_before = descriptors.raise_limit()
    file_sizes.raise_limit()
    for name in _IMPORTED_LATE:
        importlib.import_module(name)
    # Modules and a long queue are no garbage: a collection that walks through them stops every
    # thread, for longer the longer the queue is.
    gc.freeze()
    gc.set_threshold(*settings.COLLECTOR_THRESHOLDS)
    return descriptors_before


def _open_log(places: Places, stack: ExitStack) -> tuple[LogWriter, FilteringBoundLogger]:
    # The file is never closed: a line that is stuck would block that as well.
    writer = LogWriter(os.fdopen(documents.open_to_append(places.log), "a", encoding="utf-8"))
    stack.callback(writer.close, settings.LOG_CLOSE_SECONDS)
    return writer, logs.to_file(cast("TextIO", writer)).bind(pid=os.getpid())


def _warn(
    options: DaemonOptions, places: Places, announce: Announcement, log: FilteringBoundLogger
) -> None:
    """Say what an operator should know of the directories."""
    for warning in ownership.group_warnings(places):
        log.warning("others may write into the data directory", problem=warning)
        announce.warn(warning)
    usual = paths.memory_run(places.data)
    if usual is not None and usual != places.run:
        taken, used = str(usual), str(places.run)
        log.warning("the run directory's usual name is taken", path=taken, used=used)
    for warning in options.closed_to_users():
        log.warning("others cannot reach a socket", problem=warning)
        announce.warn(warning)
    catalogue.families()
    installed_kinds()
    installed_answers.installed()
    catalogue.load_user_opcodes()
    # `ganger fsck` uses them, and it is seldom called: the daemon says in time what is wrong.
    entry_points.load(entry_points.CONFIG_FILES)
    for problem in left_out():
        log.error(entry_points.LEFT_OUT, problem=problem)


def _record(
    options: DaemonOptions, places: Places, announce: Announcement, log: FilteringBoundLogger
) -> None:
    """Say which options of the last daemon this one has not, and write down its own."""
    if text := options.dropped(recorded(places)):
        log.warning("options were left out", problem=text)
        announce.warn(text)
    try:
        options.record(places)
    except errors.StorageError as error:
        log.warning("the options are not written down", error=error.text)


def _rapi_of(options: DaemonOptions) -> RapiOptions | None:
    if options.no_rapi:
        return None
    return RapiOptions(
        address=options.rapi_address,
        port=options.rapi_port,
        is_authentication_required=not options.rapi_anonymous_reads,
        has_tls=not options.rapi_no_tls,
        hosts=options.rapi_host,
    )


def _first_user(
    places: Places, rapi: RapiOptions, announce: Announcement
) -> FirstCredentials | None:
    """The first user of the remote API, if this is the first start. Jobs do without.

    None is made if the password would not be seen: a file or a journal would keep it.
    """
    is_seen = announce.is_seen
    if not is_seen and not first_rapi.has_users(places):
        announce.warn(first_rapi.NO_USER)
    try:
        return first_rapi.prepare_apart(
            places, rapi.address, has_tls=rapi.has_tls, has_user=is_seen
        )
    except errors.StorageError as error:
        assert announce.log is not None
        announce.log.error("the remote API cannot be set up", error=error.text)
        return None


def _prepare(places: Places) -> None:
    documents.make_data_directory(places.data)
    file_systems.require_locks(places.data)
    for directory in (places.queue, places.archive):
        documents.make_directory(directory)
    documents.make_directory(places.lock_files, 0o700)


def _remove_dead_lock_files(places: Places) -> None:
    """Delete lock files of killed predecessors; a missing file means dead as well."""
    for folder in (places.lock_files, places.former_lock_files):
        if folder.is_dir():
            for path in folder.iterdir():
                if lock_files.is_dead(path):
                    lock_files.remove_dead(path)


def _tidy(places: Places) -> None:
    """Remove the run directory, unless jobs run: they look there for the next daemon."""
    lock_files.remove_spares(os.fspath(places.lock_files))
    with suppress(OSError):
        places.lock_files.rmdir()
    with suppress(OSError):
        if places.former_lock_files.is_dir():
            places.former_lock_files.rmdir()
        places.socket.unlink(missing_ok=True)
    for beside in (places.authority_socket, places.node_socket):
        shutil.rmtree(beside.parent, ignore_errors=True)
    if places.lock_files.exists():
        # Its name would be free for everybody.
        return
    shutil.rmtree(places.dry_runs, ignore_errors=True)
    with suppress(OSError):
        places.run.rmdir()
    with suppress(OSError):
        run_directory.forget(places)


def _go_at_once(host: Host, writer: LogWriter, shutdown: Shutdown, announce: Announcement) -> None:
    """Replace or end this process, unless its components have stopped in order."""
    if shutdown.restart_reason is not None:
        _begin_anew(host, writer, shutdown.restart_reason)
    if shutdown.is_abandoned and shutdown.error is not None:
        announce.failed(shutdown.error)
        _leave(host.log, writer, shutdown.error)


def _begin_anew(host: Host, writer: LogWriter, reason: str) -> None:
    """Replace this process by a new daemon, or end it if that happened too often.

    The kernel ends every thread, even one that hangs, and closes every lock file: as sudden as
    SIGKILL, and as safe. The pid stays the same.
    """
    record = supervising.Record(tuple(map(float, os.environ.get(RESTARTS_VARIABLE, "").split())))
    decision = supervising.after_failure(supervising.DAEMON, record, time.monotonic())
    if decision.action == "give_up":
        text = f"the daemon began anew too often, the last time as {reason}"
        # At once: threads that still run may write, so the queue's lock must end with them.
        _leave(host.log, writer, _with_hint(errors.RestartLimitError(text), host.places))
    host.log.critical("the daemon begins anew", reason=reason)
    os.environ[RESTARTS_VARIABLE] = " ".join(map(str, decision.record.failures))
    end_child_processes()
    writer.close(settings.LOG_CLOSE_SECONDS)
    assert host.descriptors_before is not None
    descriptors.set_limit(host.descriptors_before)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - no shell needed


def _leave(log: FilteringBoundLogger, writer: LogWriter, error: errors.GangerError) -> NoReturn:
    """Log the reason and end this process at once, as suddenly as SIGKILL does."""
    log.critical("the daemon ends; jobs that run go on", reason=error.text)
    with suppress(OSError, ValueError):
        output.echo(f"ganger: {error.text}", err=True)
    end_child_processes()
    writer.close(settings.LOG_CLOSE_SECONDS)
    os._exit(error.exit_code)


def _supervise(host: Host, shutdown: Shutdown, ready: object, watchdog: Watchdog) -> None:
    """Start the supervisor and wait, on the main thread, for a signal or the end."""
    is_asked = False

    def stop(*_: object) -> None:
        nonlocal is_asked
        is_asked = True
        host.directory.tell(Supervisor.name, Envelope(StopRequested()))

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    start(host, Supervisor, SUPERVISION, 0, shutdown, ready)
    if is_asked:
        # The signal may have come before there was a supervisor that could hear of it.
        stop()
    watchdog.watch()
