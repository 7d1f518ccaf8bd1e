"""``ganger status --check``: one line and an exit code for a monitoring system.

The exit codes are those of monitoring plugins: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec
from click.core import ParameterSource

from ..storage import errors, wording
from ..storage.disk import reserve
from ..storage.jobs.jobs import JobStatus
from . import choices, output

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..transport.client.client import Client
    from ..transport.messages import DaemonInfo
    from .call import Call

OK, WARNING, CRITICAL, UNKNOWN = range(4)
_NAMES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_PERCENT_MAX = 100
_ANSWER_SECONDS = 5.0
_NAMED_MAX = 3
"""So many of the files, jobs and parts that are in trouble are named."""


class Least(NamedTuple):
    """The least that is to be free: bytes, or a part of the disk."""

    number: float
    is_percent: bool

    def is_missed(self, free: int, total: int) -> bool:
        """Whether less than that is free."""
        return free < (total * self.number / _PERCENT_MAX if self.is_percent else self.number)

    def __str__(self) -> str:
        return f"{self.number:g}%" if self.is_percent else wording.size(self.number)


class LeastFree(click.ParamType[Least]):
    """A part of the disk or a size: ``10%``, ``500M``, ``5G``."""

    name = "space"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Least:
        if isinstance(value, Least):
            return value
        text = str(value)
        if (found := re.fullmatch(r"(\d{1,3}(?:\.\d{1,3})?)%", text, re.ASCII)) is not None:
            if float(found[1]) > _PERCENT_MAX:
                self.fail(f"expected at most 100%, got {text!r}", param, ctx)
            return Least(float(found[1]), is_percent=True)
        return Least(choices.Bytes().convert(text, param, ctx), is_percent=False)


class Thresholds(msgspec.Struct, frozen=True):
    """What counts as trouble."""

    free_warn: Least = Least(5, is_percent=True)
    free_critical: Least = Least(1, is_percent=True)
    wait_warn: float | None = None


class CheckCommand(click.Command):
    """Wrong options are no trouble of the daemon: with --check the state is unknown then."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As of each command. Exits with `UNKNOWN` for what is wrong with --check."""
        is_check = "--check" in args
        try:
            left = super().parse_args(ctx, args)
            _check_order(ctx)
        except click.UsageError as error:
            if not is_check:
                raise
            output.echo(f"GANGER {_NAMES[UNKNOWN]}: {error.format_message()}")
            raise click.exceptions.Exit(UNKNOWN) from error
        return left


def _check_order(ctx: click.Context) -> None:
    """Refuse a warning that comes after what is critical, if it was given."""
    warn, critical = ctx.params.get("free_warn"), ctx.params.get("free_critical")
    is_given = ctx.get_parameter_source("free_warn") is ParameterSource.COMMANDLINE
    if not (is_given and isinstance(warn, Least) and isinstance(critical, Least)):
        return
    if warn.is_percent is critical.is_percent and warn.number < critical.number:
        text = f"--disk-free-warn: {warn} is less than what is critical, {critical}"
        raise click.UsageError(text, ctx)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the check; they arrive as ``check``, ``free_warn`` and so on."""
    for option in (
        click.option(
            "--wait-warn",
            type=choices.Seconds(),
            metavar="SPAN",
            help="With --check: a job that has been queued for longer is a warning.",
        ),
        click.option(
            "--disk-free-critical",
            "free_critical",
            type=LeastFree(),
            default=str(Thresholds().free_critical),
            show_default=True,
            metavar="SPACE",
            help="With --check: less free space is critical.",
        ),
        click.option(
            "--disk-free-warn",
            "free_warn",
            type=LeastFree(),
            default=str(Thresholds().free_warn),
            show_default=True,
            metavar="SPACE",
            help="With --check: less free space is a warning: a part of the disk, or 500M, 5G.",
        ),
        click.option(
            "--check",
            is_flag=True,
            help="Print one line, and end as a monitoring plugin: 0 OK, 1 warning, 2 critical, "
            "3 unknown.",
        ),
    ):
        function = option(function)
    return function


def run(call: Call, thresholds: Thresholds, find_pid: Callable[[], int | None]) -> int:
    """Print the line of the check, and give its exit code.

    ``find_pid`` gives the pid of the daemon, if one runs.
    """
    try:
        pid = find_pid()
    except errors.GangerError as error:
        # Whoever may not look into the directory does not know how the daemon is.
        return _tell(UNKNOWN, [error.text])
    if pid is None:
        return _tell(CRITICAL, [f"no daemon runs in {call.places.data}"])
    try:
        with call.client(_ANSWER_SECONDS) as client:
            info = client.info(disk=True)
            waits = None if thresholds.wait_warn is None else _longest_wait(client)
    except errors.TryAgainError as error:
        text = f"the daemon (pid {pid}) in {call.places.data} does not answer: {error.text}"
        return _tell(CRITICAL, [text])
    except errors.GangerError as error:
        return _tell(UNKNOWN, [error.text])
    level, found = judged(info, thresholds, waits)
    return _tell(level, found or [_well(info)], _figures(info))


def judged(
    info: DaemonInfo, thresholds: Thresholds, waits: tuple[int, float] | None = None
) -> tuple[int, list[str]]:
    """How bad it is, and what is wrong, the worst first.

    ``waits``: the job that has been queued for longest, and for how many seconds.
    """
    critical = [*_broken(info)]
    warnings = [*_doubtful(info)]
    if info.disk is not None:
        free, total = info.disk.free, info.disk.total
        for least, kind in (
            (thresholds.free_critical, critical),
            (thresholds.free_warn, warnings),
        ):
            if least.is_missed(free, total):
                kind.append(f"{_free(free, total)} free, less than {least}")
                break
    if waits is not None and thresholds.wait_warn is not None and waits[1] > thresholds.wait_warn:
        warnings.append(f"job {waits[0]} has been queued for {output.span(waits[1])}")
    level = CRITICAL if critical else WARNING if warnings else OK
    return level, critical + warnings


def _broken(info: DaemonInfo) -> list[str]:
    found = []
    if info.is_read_only:
        found.append("the queue is read-only: the disk refuses writes")
    elif info.is_disk_full:
        found.append("the disk is full: the queue takes no new jobs")
    elif info.lacks_room:
        found.append("the disk has no room for a new job: the queue takes none")
    missing = [one.name for one in info.components if not one.is_ready]
    if missing:
        found.append(f"not ready: {_named(missing)}")
    if info.rapi is not None and info.rapi.problem:
        found.append(f"the remote API is not served: {info.rapi.problem}")
    found += [f"{one.protocol} is not served: {one.problem}" for one in info.sockets if one.problem]
    return found


def _doubtful(info: DaemonInfo) -> list[str]:
    found = []
    if info.is_drained:
        found.append("the queue is drained: it takes no jobs")
    if info.output_dropped:
        ids = _named([f"job {job_id}" for job_id in info.output_dropped])
        found.append(f"output is dropped: {ids}")
    elif info.disk is not None and info.disk.free < reserve.kept_bytes(info.disk.total):
        found.append("there is no room for output of commands: it is dropped")
    if info.quarantined:
        found.append(f"files that cannot be read: {_named(info.quarantined)}")
    if info.disk is None:
        found.append("how much of the disk is free is not known")
    return found


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


def _longest_wait(client: Client) -> tuple[int, float] | None:
    """The job that has been queued for longest: of those with the lowest ids, which came first."""
    for job in client.jobs(statuses=[JobStatus.QUEUED]):
        if job.received is not None:
            return job.id, time.time() - job.received
    return None


def _well(info: DaemonInfo) -> str:
    counts = info.counts
    pending = sum(counts.get(name, 0) for name in (JobStatus.QUEUED, JobStatus.WAITING))
    jobs = f"{counts.get(JobStatus.RUNNING, 0)} running, {pending} pending"
    return jobs if info.disk is None else f"{jobs}, {_free(info.disk.free, info.disk.total)} free"


def _free(free: int, total: int) -> str:
    return f"{wording.size(free)} ({free * _PERCENT_MAX // max(1, total)}%)"


def _figures(info: DaemonInfo) -> str:
    """What a monitoring system may draw."""
    counts = info.counts
    figures = [f"{name}={counts.get(name, 0)}" for name in (JobStatus.RUNNING, JobStatus.QUEUED)]
    if info.disk is not None:
        figures.append(f"free={info.disk.free}B;;;0;{info.disk.total}")
    return " ".join(figures)


def _tell(level: int, found: list[str], figures: str = "") -> int:
    # The bar begins the figures.
    text = "; ".join(found).replace("|", "/")
    output.echo(f"GANGER {_NAMES[level]}: {text}" + (f" | {figures}" if figures else ""))
    return level
