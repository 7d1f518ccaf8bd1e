"""``ganger fsck``: checks a data directory that no daemon uses, and repairs it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..storage import entry_points, errors, wording
from ..storage.alive import directory_locks
from ..storage.disk import ownership
from ..storage.fsck import checking, repairing, survey
from ..storage.fsck.findings import Finding, FindingRemedy
from . import output
from .progress import Bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..storage.disk.paths import Places
    from ..storage.fsck.repairing import RepairStep, Result
    from .call import Call

FOUND_EXIT_CODE = 1
_BAR_JOBS_MIN = 1_000
"""Fewer job files are read faster than a bar appears."""


@click.command()
@click.option("--repair", is_flag=True, help="Repair what can be repaired without losing anything.")
@output.output_option
@click.pass_obj
def fsck(call: Call, *, repair: bool, output_kind: str) -> None:
    """Check a data directory that no daemon uses: the journal, job files, ids, locks and the rest.

    Without --repair nothing is changed. With it, the records of the journal are written into
    the job files, and unreadable files are moved into queue/quarantine, never deleted. The
    file of a job whose process lives is not touched. Lines that begin with `note:` need no
    action.

    \b
    Exit codes:
      0    clean, or everything was repaired
      1    something is left to be done
      70   a daemon uses the directory, there is none, it is of another version, or
           (with --repair) it belongs to another user
    """  # noqa: D301 - the mark that keeps lines apart
    try:
        left = _check(call.places, repair=repair, output_kind=output_kind)
    except errors.DataDirectoryError as error:
        # The exit code of this class means here that something was found.
        raise errors.OperatorError(error.text) from error
    if left:
        raise click.exceptions.Exit(FOUND_EXIT_CODE)


def _check(places: Places, *, repair: bool, output_kind: str) -> list[Finding]:
    """Check, repair if ``repair``, show the step, and return the findings that are left."""
    survey.require_queue(places)
    if repair:
        ownership.require_own(places, "fsck --repair")
    steps: list[RepairStep] = []

    def report(step: RepairStep) -> None:
        steps.append(step)
        if output_kind != "json":
            output.echo(_step_line(step))

    for problem in entry_points.problems():
        output.echo(f"Not checked: {problem}", err=True)
    with _offline(places, to_write=repair), Bar("reading jobs", _BAR_JOBS_MIN) as bar:
        if repair:
            result = repairing.repair(places, report, bar.show)
        else:
            facts = survey.survey(places, bar.show)
            result = repairing.Result(facts, checking.check(facts))
    left = [finding for finding in result.findings if finding.remedy is not FindingRemedy.NONE]
    if output_kind == "json":
        output.show_json(_document(places, result, steps))
    else:
        _show(result, left, steps)
    return left


@contextmanager
def _offline(places: Places, *, to_write: bool) -> Iterator[None]:
    """Keep daemons out meanwhile; `DirectoryLockedError` if one runs."""
    try:
        path = places.queue / "lock"
        lock = directory_locks.OfflineLock(path, to_write=to_write, when_waiting=_tell_wait)
        try:
            yield
            lock.confirm()
        finally:
            lock.release()
    except errors.DirectoryLockedError as error:
        text = f"{error.text}; fsck works offline (`ganger down`: running jobs go on)"
        raise errors.DirectoryLockedError(text) from error


def _tell_wait() -> None:
    output.echo("A killed daemon has left a process; waiting for its end ...", err=True)


def _show(result: Result, left: list[Finding], steps: list[RepairStep]) -> None:
    for finding in result.findings:
        output.echo(_finding_line(finding))
    jobs = wording.counted(len(result.facts.jobs), "job")
    archived = len(result.facts.archived)
    output.echo(f"{jobs}, {archived} archived: {_verdict(left, steps)}")


def _verdict(left: list[Finding], steps: list[RepairStep]) -> str:
    repaired = sum(step.error is None for step in steps)
    words = [f"{repaired} repaired"] if repaired else []
    if not left:
        return ", ".join([*words, "clean"])
    words.append(f"{len(left)} left" if steps else f"{len(left)} found")
    repairable = sum(finding.remedy is FindingRemedy.REPAIR for finding in left)
    if repairable and not steps:
        words.append(f"{repairable} of them `ganger fsck --repair` can repair")
    return ", ".join(words)


def _finding_line(finding: Finding) -> str:
    how = f"--repair {finding.how}" if finding.remedy is FindingRemedy.REPAIR else finding.how
    note = "note: " if finding.remedy is FindingRemedy.NONE else ""
    return f"{note}{finding.path}: {finding.what}; {how}"


def _step_line(step: RepairStep) -> str:
    if step.error is not None:
        return f"not repaired: {step.finding.path}: {step.error}"
    return f"repaired: {step.finding.path}: {step.finding.what}; {step.action}"


def _document(places: Places, result: Result, steps: list[RepairStep]) -> dict[str, Any]:
    return {
        "data": str(places.data),
        "jobs": len(result.facts.jobs),
        "archived": len(result.facts.archived),
        "repaired": [
            {**_plain(step.finding), "action": step.action, "error": step.error} for step in steps
        ],
        "findings": [_plain(finding) for finding in result.findings],
    }


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "path": finding.path,
        "what": finding.what,
        "job_id": finding.job_id,
        "remedy": finding.remedy,
        "how": finding.how,
    }
