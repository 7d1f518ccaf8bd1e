"""What a scheduling pass has decided, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ...transport.messages import PendingEnd


class Unsatisfiable(msgspec.Struct, frozen=True):
    """A pending job that cannot start any more, and why: a text, or the rule that rejects it.

    ``dependency``: the job that it depends on whose end decides that; None: another reason.
    """

    id: int
    verdict: PendingEnd
    text: str
    dependency: int | None = None


class Pass(msgspec.Struct, frozen=True):
    """The decisions of a pass, and its questions for the next one.

    ``start``: these jobs have a run slot from now on; ``limits`` names the limiting rules in which
    they took a place. ``unknown``: nothing is known of these
    jobs, which are named in dependencies, or whether these still run. ``eligible``: newly
    waiting for a slot only. ``unjudged``: what the rules in force say of these must be known
    before the next one can start. ``due_at``: when another pass is needed, if nothing else changes
    before: a job is held back no longer then.
    """

    start: list[int]
    unsatisfiable: list[Unsatisfiable]
    unknown: list[int]
    eligible: list[int]
    unjudged: list[int] = []
    limits: dict[int, str] = {}
    due_at: float | None = None
