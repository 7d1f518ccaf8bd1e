"""``ganger status``: how the daemon is, and its parts in words.

`monitoring` judges the same for ``--check``.
"""

from __future__ import annotations

import shlex
import textwrap
import time
from typing import TYPE_CHECKING

import click
import msgspec

from ..storage import errors, wording
from ..storage.disk import ownership, reserve
from ..storage.jobs.jobs import JobStatus
from . import hints, monitoring, output, up
from .daemon_options import DaemonOptions, recorded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..storage.disk.disk_parts import DiskUse
    from ..storage.disk.paths import Places
    from ..transport.client.client import Client
    from ..transport.messages import DaemonInfo, LimitsRead, MasterState, RapiState, SocketState
    from .call import Call

NOT_RUNNING_EXIT_CODE = 3
_ANSWER_SECONDS = 5.0
_LINE_WIDTH = 80
_WAITING_SECONDS = 2.0
"""The state of the daemon is shown also if its scheduler hangs."""


@click.command(cls=monitoring.CheckCommand)
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
    is full, or has no room for a new job; 70: the daemon does not listen where it should.
    """
    places = call.places
    if check:
        thresholds = monitoring.Thresholds(free_warn, free_critical, wait_warn)
        return monitoring.run(call, thresholds, lambda: up.running_pid(places))
    pid = up.running_pid(places)
    if pid is None:
        _tell_not_running(call, output_kind)
        raise click.exceptions.Exit(NOT_RUNNING_EXIT_CODE)
    try:
        with call.client(_ANSWER_SECONDS) as client:
            info = client.info(disk=True)
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
    if info.is_read_only or is_full(info) or info.lacks_room:
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
    is_node = call.places.membership.exists()
    words = "node up" if is_node else "up"
    is_usual = call.data is None and not is_node
    start = "ganger up" if is_usual else ownership.command(call.places, words)
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
        **(_node_lines(info.master) if info.master is not None else {}),
        **({"Remote API": rapi_state(info.rapi)} if info.rapi is not None else {}),
        "Jobs": jobs_text(info),
        **({"Waiting": waiting_text(waiting)} if waiting else {}),
        "Processes": "one for many jobs, in turn" if info.reuses_processes else "one for each job",
        **({"Options": shlex.join(options.words())} if options and given else {}),
        "Queue": queue_state(info),
        "Disk": disk_use(info),
        **(
            {"Archive": wording.indexed(done)} if (done := info.archive_indexed) is not None else {}
        ),
        "Last id": str(info.counts.get("last_id", 0)),
        "Memory": ", ".join(
            f"{name} {size / 1_048_576:.0f} MiB" if size else f"{name} unknown"
            for name, size in info.memory.items()
        ),
    }
    for line in alarm(info):
        output.echo(line)
    for name, text in lines.items():
        output.echo(f"{name + ':':<12}{text}")
    _show_parts(info)


def _show_parts(info: DaemonInfo) -> None:
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


def jobs_text(info: DaemonInfo) -> str:
    """How many jobs are live and where they are: those that have ended by their outcomes."""
    counts = {name: count for name, count in info.counts.items() if name != "last_id"}
    if info.outcomes:
        live = {name: counts[name] for name in counts if not JobStatus(name).is_final}
        counts = live | info.outcomes
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


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


def _node_lines(master: MasterState) -> dict[str, str]:
    """Of which cluster this host is a node, and how its call to the master is."""
    since = output.absolute(master.since)
    state = f"connected since {since}" if master.connected else f"NOT CONNECTED since {since}"
    why = f": {master.problem}" if master.problem else ""
    return {
        "Node": f"{master.node} of the cluster {master.cluster}",
        "Master": f"{master.endpoint}, {state}{why}",
    }


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
    parts = [f"{name} {size(taken)}" for name, taken in disk.parts().items() if name != "reserve"]
    reserve = f"reserve {size(disk.reserve)}" if disk.reserve else "no reserve"
    return f"{', '.join([*parts, reserve])}; {_free(disk)}"


def is_full(info: DaemonInfo) -> bool:
    """Whether the disk is full: the daemon says so, or what it has measured does."""
    disk = info.disk
    return info.is_disk_full or (
        disk is not None and reserve.is_low(reserve.Space(disk.free, disk.total))
    )


_GIVE_SPACE = textwrap.wrap(
    f"{hints.GIVE_SPACE} (`--dry-run` shows which jobs go); if none has ended, cancel some first: "
    "`ganger job cancel IDS`; or free space elsewhere on the disk",
    _LINE_WIDTH,
    initial_indent="  ",
    subsequent_indent="  ",
)


def alarm(info: DaemonInfo) -> list[str]:
    """The first lines of the status if the queue stands still: why, and what helps."""
    free = "" if info.disk is None else f": {_free(info.disk)}"
    if is_full(info):
        return [f"DISK FULL{free}; no new jobs are taken, and none start", *_GIVE_SPACE]
    if info.lacks_room and not info.is_read_only:
        return [f"NO ROOM{free}; no new jobs are taken", *_GIVE_SPACE]
    if info.is_read_only:
        return [
            "READ-ONLY: the disk refuses writes; no changes are taken",
            "  the queue goes on by itself as soon as the disk works again",
        ]
    return []


def _free(disk: DiskUse) -> str:
    return f"{wording.size(disk.free)} of {wording.size(disk.total)} free"


def queue_state(info: DaemonInfo) -> str:
    """Whether the queue takes jobs, in words."""
    words = [
        *(
            ["READ-ONLY: the disk refuses writes; no changes are taken"]
            if info.is_read_only
            else []
        ),
        *(["DISK FULL: no new jobs are taken, and none start"] if is_full(info) else []),
        *(["NO ROOM on the disk: no new jobs are taken"] if info.lacks_room else []),
        *(["drained: it takes no jobs"] if info.is_drained else []),
    ]
    return "; ".join(words) or "open"
