"""Where the product meets the real world, and what stands there instead: all in one place."""

from __future__ import annotations

import functools
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tests import own_children
from tests.torture.simulation import (
    local_sockets,
    network,
    simulated_daemon,
    simulated_processes,
    sockets,
    tools,
)
from tests.torture.simulation.core import Core
from tests.torture.simulation.oracle import Needs
from tests.torture.simulation.simulated_processes import JobTask
from tests.torture.simulation.user import LARGE_INPUT

from ganger.actors.execution import children, executor, fork_servers, idle_processes, reaper
from ganger.actors.ganeti import luxi_listener, wconfd_listener
from ganger.actors.job import daemon_link, job, job_log
from ganger.actors.listeners import wire_listener as listener
from ganger.actors.operations import registry
from ganger.actors.processes import channels, fork_protocol, lock_file_owners, machine, own_state
from ganger.actors.runtime.actor import ComponentActor
from ganger.storage import settings
from ganger.storage.alive import lock_files, process_identity
from ganger.storage.disk import documents
from ganger.storage.log import journal
from ganger.storage.opcodes import KilledError, OperationContext, OperationError
from ganger.storage.opcodes.catalogue import OpExec
from ganger.storage.queue_files import job_files
from ganger.transport.zmq import local_wire


class Select:
    """Stands for the module where programs wait for channels."""

    POLLIN = select.POLLIN
    poll = sockets.Poll


class ObservedJobActor(job.JobActor):
    """The real one, which can be looked at from outside."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        task = Core.active.current
        assert isinstance(task, JobTask)
        task.actor = self


def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
    """A change on disk: the program may fail just before and just after it."""

    @functools.wraps(call)
    def at_risk(*given: Any, **named: Any) -> Any:
        Core.active.fault_point()
        result = call(*given, **named)
        Core.active.fault_point()
        return result

    return at_risk


def run_simulated(opcode: OpExec, context: OperationContext) -> None:
    """The operation: it tells the oracle that it has begun, waits, and tells of its end."""
    task = Core.active.current
    assert isinstance(task, JobTask)
    oracle = Core.active.oracle
    needs: Needs = tuple((name, str(mode)) for name, mode in opcode.lock_needs().to_changes())
    oracle.started(context.job_id, context.op_index, needs)
    task.is_operating = True
    deadline = context.clock() + float(opcode.argv[1])
    context.log("has begun")
    _check_input(opcode, context)
    try:
        while (left := deadline - context.clock()) > 0:
            context.poll([], left)
    except KilledError:
        task.is_operating = False
        oracle.ended(context.job_id, context.op_index)
        raise
    task.is_operating = False
    context.log_lines(["one", "two", "three"], "stdout")
    oracle.ended(context.job_id, context.op_index)
    if opcode.argv[2:]:
        raise OperationError("OpExecError", "as it was told to")


def _check_input(opcode: OpExec, context: OperationContext) -> None:
    """What lies beside the job must be what was submitted."""
    if opcode.stdin_file is not None:
        with open(context.open_input(opcode.stdin_file), "rb") as file:
            found = file.read()
        if found != LARGE_INPUT.encode():
            Core.active.problem(f"job {context.job_id} reads {found[:20]!r}, {len(found)} bytes")


def _asks_clock(name: str) -> Callable[[], float]:
    def ask() -> float:
        """The time in the world that is active now."""
        seconds: float = getattr(Core.active.clock, name)()
        return seconds

    return ask


@functools.cache
def _watch_real_sockets() -> dict[str, bool]:
    """What of ours connects to a real socket is not in the world, whose faults pass it by."""
    world = {"is here": False}

    def watch(event: str, _given: tuple[Any, ...]) -> None:
        if event == "socket.connect" and world["is here"]:
            raise AssertionError("a socket for which nothing stands in the simulated world")

    # Nobody can remove it.
    sys.addaudithook(watch)
    return world


@contextmanager
def simulated() -> Iterator[None]:
    """Within, every component and job lives in the world that is active."""
    create, remove = lock_files.create, lock_files.LockFile.remove

    def create_lock_file(
        directory: str | os.PathLike[str], stem: str, *, spare: str | None = None
    ) -> lock_files.LockFile:
        return simulated_processes.create_lock_file(create, directory, stem, spare)

    def remove_lock_file(held: lock_files.LockFile) -> None:
        simulated_processes.remove_lock_file(remove, held)

    replaced: list[tuple[Any, str, Any]] = [
        (time, "time", _asks_clock("time")),
        (time, "monotonic", _asks_clock("monotonic")),
        (time, "monotonic_ns", _asks_clock("monotonic_ns")),
        (time, "time_ns", _asks_clock("time_ns")),
        (os, "getpid", simulated_processes.own_pid),
        (lock_files, "create", create_lock_file),
        (lock_files.LockFile, "remove", remove_lock_file),
        (lock_files, "holder", simulated_processes.holder),
        (lock_files, "own_files", simulated_processes.OwnFiles()),
        (process_identity, "own", simulated_processes.own_mark),
        (process_identity, "lives", simulated_processes.lives),
        (process_identity, "open_pidfd", simulated_processes.open_pidfd),
        (process_identity, "serves", simulated_processes.serves),
        (process_identity, "show_job", simulated_processes.show_job),
        (own_state, "take", simulated_processes.take_state),
        (documents, "replace", guarded(documents.replace)),
        (documents, "exchange", guarded(documents.exchange)),
        (documents, "create", guarded(documents.create)),
        (journal.Journal, "write", guarded(journal.Journal.write)),
        (job_files.QueueDirectory, "archive", guarded(job_files.QueueDirectory.archive)),
        (settings, "JOURNAL_RESERVE_BYTES", 4_096),
        # Reports of the whole queue have several pages.
        (settings, "REPORT_JOBS", 3),
        # Each world chooses its own (see `world`).
        (settings, "JOURNAL_SEGMENT_BYTES", settings.JOURNAL_SEGMENT_BYTES),
        (settings, "FILES_UNWRITTEN_MAX", settings.FILES_UNWRITTEN_MAX),
        (channels, "pair", sockets.pair),
        (channels, "select", Select),
        (local_wire, "_socket", local_sockets.Module),
        (listener, "Router", network.Router),
        (listener, "os", network.SocketOs()),
        (wconfd_listener, "DocumentSocket", network.NoDocuments),
        (luxi_listener, "DocumentSocket", tools.Documents),
        (executor, "os", simulated_processes.ProcessOs()),
        (children, "os", simulated_processes.ProcessOs()),
        (reaper, "os", simulated_processes.ProcessOs()),
        (idle_processes, "os", simulated_processes.ProcessOs()),
        (fork_protocol, "ask_status", simulated_processes.ask_no_status),
        (lock_file_owners, "os", simulated_processes.ProcessOs()),
        (fork_servers, "subprocess", simulated_processes.Subprocess),
        (machine, "psutil", simulated_processes.Psutil),
        (daemon_link, "select", Select),
        *own_children.REPLACED,
        (job, "JobActor", ObservedJobActor),
        # What is sent again does not go all the way back: the rest must be in the file.
        (job_log, "RESENT_MAX", 2),
        (ComponentActor, "stop_within", simulated_daemon.stop_within),
    ]
    with ExitStack() as stack:
        for place, name, instead in replaced:
            stack.enter_context(patch.object(place, name, instead))
        stack.enter_context(patch.dict(registry.OPERATIONS, {"OP_EXEC": run_simulated}))
        stack.enter_context(patch.dict(_watch_real_sockets(), {"is here": True}))
        yield
