"""The options of ``ganger queue limit`` about the disk, and what is shown of these limits."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from ..storage import wording
from . import choices, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..storage.disk.disk_parts import DiskLimits

_NONE = "none: no limit."


class _SpanOrNone(choices.Seconds):
    """As `Seconds`; ``none`` is 0."""

    others = " or none"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        return 0.0 if value == "none" else super().convert(value, param, ctx)


class _SomeBytes(choices.Bytes):
    """As `Bytes`, from 1 on."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        number = super().convert(value, param, ctx)
        if not number:
            self.fail("expected more than 0 bytes", param, ctx)
        return number


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options; those that are given arrive as ``disk``."""

    @click.option(
        "--output-per-job",
        "output_job_bytes",
        type=_SomeBytes(),
        metavar="SIZE",
        help="Most output of one job, such as 200M; opcodes may have less (output_limit).",
    )
    @click.option(
        "--output-in-all",
        "output_bytes",
        type=choices.BytesOrNone(),
        metavar="SIZE",
        help=f"Drop output while output and archive take this much or more. {_NONE}",
    )
    @click.option(
        "--keep-for",
        "keep_seconds",
        type=_SpanOrNone(),
        metavar="SPAN",
        help=f"Purge jobs that ended longer ago, such as 90d. {_NONE}",
    )
    @click.option(
        "--keep-size",
        "keep_bytes",
        type=choices.BytesOrNone(),
        metavar="SIZE",
        help=f"Purge the oldest jobs while output and archive take more. {_NONE}",
    )
    @functools.wraps(function)
    def wrapped(
        *args: Any,  # noqa: ANN401
        output_job_bytes: int | None,
        output_bytes: int | None,
        keep_seconds: float | None,
        keep_bytes: int | None,
        **others: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        named = {
            "output_job_bytes": output_job_bytes,
            "output_bytes": output_bytes,
            "keep_seconds": keep_seconds,
            "keep_bytes": keep_bytes,
        }
        disk = {name: number for name, number in named.items() if number is not None}
        return function(*args, disk=disk, **others)

    return wrapped


def lines(limits: DiskLimits) -> Iterator[str]:
    """What is shown of the limits."""
    in_all = wording.size(limits.output_bytes) if limits.output_bytes else "no limit"
    yield f"Output: {wording.size(limits.output_job_bytes)} of each job, {in_all} in all"
    kept = []
    if limits.keep_seconds:
        kept.append(f"for {output.span(limits.keep_seconds)}")
    if limits.keep_bytes:
        kept.append(f"up to {wording.size(limits.keep_bytes)}")
    yield f"Ended jobs are kept {', '.join(kept) or 'until they are purged'}"
