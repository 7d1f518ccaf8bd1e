"""Submits jobs and prints the outcome: the ids, and which jobs a filter rule rejects.

The client library reports all rejected jobs in one error; here each has a line of its own, with
its name in the plan.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from ..storage import errors
from . import output, repeating

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.client.client import Client
    from .plans import PlannedJob

_PLACE = re.compile(r"job ([0-9]+) of the submission")


class Entry(msgspec.Struct, frozen=True):
    """One job of a submission; without an id it is not stored, and ``rejected`` may say why."""

    id: int | None
    name: str | None
    rejected: str | msgspec.UnsetType = msgspec.UNSET


def send(client: Client, planned: Sequence[PlannedJob], **options: Any) -> list[Entry]:  # noqa: ANN401
    """Submit jobs and return the outcome of each, in order.

    ``options`` are those of `Client.submit_many`. A submission that is refused as a whole raises
    the error, with the name that the job has in the plan. If nobody knows whether it is stored, the
    error names the key under which it can be repeated.
    """
    reasons: dict[int, str] = {}
    submissions = [one.as_submission() for one in planned]
    try:
        ids: Sequence[int | None]
        if options["dry_run"]:
            ids = client.submit_many(submissions, **options)
        else:
            with repeating.under(options["key"]) as options["key"]:
                ids = client.submit_many(submissions, **options)
    except errors.RejectedError as error:
        ids = error.ids
        reasons = dict(error.rejected)
    except errors.BadRequestError as error:
        match = _PLACE.match(error.text)
        if match is None:
            raise
        raise type(error)(_name(match, planned) + error.text[match.end() :]) from error
    ids = ids or [None] * len(planned)
    return [
        Entry(
            job_id,
            one.name,
            _renamed(reasons[place], planned) if place in reasons else msgspec.UNSET,
        )
        for place, (one, job_id) in enumerate(zip(planned, ids, strict=True))
    ]


def tell(
    entries: Sequence[Entry], planned: Sequence[PlannedJob], output_kind: str, *, dry_run: bool
) -> int:
    """Print the ids, and on standard error each rejected job; 0 if there is none, else 1."""
    rejected = [place for place, one in enumerate(entries) if one.rejected is not msgspec.UNSET]
    if output_kind == "json":
        output.show_json(entries)
    elif dry_run:
        _tell_count(len(entries) - len(rejected), len(entries))
    else:
        for one in entries:
            if one.id is not None:
                output.echo(f"{one.id}\t{one.name}" if one.name else str(one.id))
    for place in rejected:
        line = f"{_label(place, planned)} is {entries[place].rejected}"
        output.echo(f"ganger: {' '.join(line.split())}", err=True)
    return 1 if rejected else 0


def _tell_count(accepted: int, count: int) -> None:
    share = str(count) if accepted == count else f"{accepted} of {count}"
    if accepted:
        output.echo(f"{share} {'job' if count == 1 else 'jobs'} would be accepted.")


def _renamed(why: str, planned: Sequence[PlannedJob]) -> str:
    if not why.startswith("not stored, "):
        return why
    return _PLACE.sub(lambda match: _name(match, planned), why)


def _name(match: re.Match[str], planned: Sequence[PlannedJob]) -> str:
    place = int(match[1])
    return _label(place, planned) if place < len(planned) else match[0]


def _label(place: int, planned: Sequence[PlannedJob]) -> str:
    """The job's name in the plan, else its place there."""
    one = planned[place]
    if one.name is not None:
        return f"job {one.name!r}"
    return "the job" if len(planned) == 1 else f"job {one.index} of the submission"
