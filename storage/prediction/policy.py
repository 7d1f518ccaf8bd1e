"""How the scheduler predicts: parameters of the cluster. Decides nothing.

``cluster/enabled_predictive_queue`` switches prediction (Ganeti 2.18 has this parameter, on by
default); ``cluster/predictive_queue`` holds Ganger's own parameters beside it. What is absent there
has the default below: the constants of the document (Ganeti design: predictive queue).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..cluster.objects import PredictiveQueue
from .lock_types import BASE, COSTS, TICK_SECONDS, TICKS, Costs


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Whether and how the scheduler orders jobs of one priority by the locks that they will take.

    The wait of a job for its turn among those of its priority is bounded: after
    `seconds_until_weightless` it weighs nothing, and its id alone decides.
    """

    is_predictive: bool = True
    """Whether weights order the jobs of one priority; else their ids do."""

    holds_back: bool = True
    """Whether a job that is certain to wait for a lock gets no run slot until it weighs nothing.

    Also then it gets none while an older job stands in line for the same locks in a run slot. On by
    default: traces say that it wins (docs/scheduling.md).
    """

    all_opcodes: bool = True
    """Whether the locks of all opcodes of a job count for its weight, and not only the first's."""

    tick_seconds: float = TICK_SECONDS
    """The unit of a job's age."""

    ticks: float = TICKS
    """The age in ticks from which on a job weighs nothing: the document's coefficient K."""

    base: float = BASE
    """The weight of a job that needs no lock."""

    costs: Costs = COSTS
    """What each cell of the table of lock types costs."""

    @property
    def seconds_until_weightless(self) -> float:
        """The age from which on a job weighs nothing: 900 s by default."""
        return self.tick_seconds * self.ticks


ENABLED_FIELD: Final = "enabled_predictive_queue"
"""The cluster's field with the switch."""

OWN_FIELD: Final = "predictive_queue"
"""The cluster's field with Ganger's own parameters."""


def policy_of(cluster: Mapping[str, Any]) -> Policy:
    """The policy that the cluster object sets.

    Own parameters that are malformed, as only a file changed by hand has them, count as absent, all
    of them: the checks of the configuration name them.

    >>> policy_of({"predictive_queue": {"tick_seconds": 10}}).seconds_until_weightless
    300.0
    """
    enabled = cluster.get(ENABLED_FIELD)
    switch = {"is_predictive": enabled} if isinstance(enabled, bool) else {}
    try:
        own = msgspec.convert(cluster.get(OWN_FIELD) or {}, PredictiveQueue)
    except msgspec.ValidationError:
        own = PredictiveQueue()
    given = {name: value for name, value in _given(own).items() if name != "costs"}
    costs = {} if own.costs is None else _given(own.costs)
    return Policy(**switch, **given, costs=Costs(**costs))


def _given(parameters: msgspec.Struct) -> dict[str, Any]:
    found = msgspec.structs.asdict(parameters)
    return {name: value for name, value in found.items() if value is not None}
