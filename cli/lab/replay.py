"""Plays traces of jobs under several policies (``ganger queue simulate --trace``)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec

from ...actors.lab import policies
from ...storage import errors, wording
from ...storage.lab import generating, traces
from .. import output, reading
from ..output import Column
from ..progress import Bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...storage.prediction.estimates import Accuracy

_JOBS_USUAL = {"hot": 20_000}
_BAR_JOBS_MIN = 5_000
"""Shorter traces are played faster than a bar appears."""


def simulate(
    trace: str | None,
    kind: str | None,
    *,
    jobs: int | None,
    seed: int | None,
    names: Sequence[str],
    slots: int | None,
    output_kind: str,
) -> None:
    """Play the trace of this file, or a generated one, and show what each policy gives."""
    policies.check(names)
    found = _found(trace, kind, jobs, seed)
    wanted = names or (*policies.POLICIES, policies.BOUND)
    with Bar("", _BAR_JOBS_MIN) as bar:

        def show(policy: str, done: int, total: int) -> None:
            bar.show(done, total, policy)

        results = policies.compared(found, wanted, slots, show)
    if output_kind == "json":
        output.show_json(
            {
                "source": trace or found.source,
                "jobs": len(found.jobs),
                "slots": slots or found.slots,
                "policies": [msgspec.to_builtins(one) for one in results],
            }
        )
        return
    played = wording.counted(len(found.jobs), "job")
    run_slots = wording.counted(slots or found.slots, "run slot")
    output.echo(f"{played} on {run_slots}; times in seconds")
    output.show_rows(results, _COLUMNS, output.Style())
    _show_accuracy(results)


def _found(trace: str | None, kind: str | None, jobs: int | None, seed: int | None) -> traces.Trace:
    """The trace of this file, or a generated one of this kind."""
    if trace is not None and kind is not None:
        raise errors.UsageError("give either --trace or --generate")
    if trace is not None:
        if jobs is not None or seed is not None:
            raise errors.UsageError("--jobs and --seed: go with --generate")
        return _read(trace)
    assert kind is not None
    count = jobs or _JOBS_USUAL.get(kind, 5_000)
    return generating.generate(kind, count, random.Random(seed or 0))  # noqa: S311 - no secret


def _show_accuracy(results: Sequence[policies.Result]) -> None:
    """How good the estimates of the last policy that estimates were."""
    measured = next((one for one in reversed(results) if one.accuracy is not None), None)
    if measured is not None and measured.accuracy is not None:
        runs = f"opcodes: {measured.accuracy.count}"
        output.echo(
            f"Run times, estimated from jobs that had ended: {_errors(measured.accuracy)} ({runs})"
        )
    if measured is not None and (plans := measured.plan_accuracy) is not None:
        output.echo(
            f"Times until jobs end, planned as they came: {_errors(plans)}"
            f" (jobs: {plans.count}, {measured.policy})"
        )


def _errors(found: Accuracy) -> str:
    return f"median error {found.median:.0%}, nine of ten within {found.high:.0%}"


def _read(name: str) -> traces.Trace:
    source = "standard input" if name == "-" else name
    try:
        if name == "-":
            return traces.read(reading.standard_input(), source)
        with open(name, "rb") as stream:  # noqa: PTH123 - as the other commands read files
            return traces.read(stream, source)
    except OSError as error:
        raise errors.UsageError(f"--trace: {name!r}: {error.strerror}") from error


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _share(result: Any) -> str:  # noqa: ANN401 - rows of a table
    return "-" if result.slots_waiting is None else f"{result.slots_waiting:.1%}"


_COLUMNS = (
    Column("policy", lambda one: one.policy),
    Column("makespan", lambda one: _seconds(one.makespan)),
    Column("wait_mean", lambda one: _seconds(one.wait_mean)),
    Column("wait_p99", lambda one: _seconds(one.wait_p99)),
    Column("wait_max", lambda one: _seconds(one.wait_max)),
    Column("slots_waiting", _share),
)
