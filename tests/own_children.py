"""Jobs that are played in a test's own process, which has children and a control group."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.actors.job.job import JobActor
from ganger.actors.processes import descendants


def nothing(*_: object, **__: object) -> Any:
    """Stands for what a job's own process does to itself and to what it has started."""
    return 0


REPLACED: list[tuple[Any, str, Any]] = [
    (descendants, "follow", nothing),
    (descendants, "end_all", nothing),
    (descendants, "has_children", nothing),
    (JobActor, "_choose_group", nothing),
]
"""A played job must not end the daemons of other tests, nor get their orphans as children."""


def leave_alone(patch: pytest.MonkeyPatch) -> None:
    """Until ``patch`` is undone, no job that is played here touches the process that it is in."""
    for place, name, instead in REPLACED:
        patch.setattr(place, name, instead)
