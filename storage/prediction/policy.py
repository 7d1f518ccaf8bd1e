"""How the scheduler predicts: parameters of the cluster. Decides nothing.

``cluster/enabled_predictive_queue`` switches prediction (Ganeti 2.18 has this parameter, on by
default); ``cluster/predictive_queue`` holds Ganger's own parameters beside it. What is absent there
has the default below: the constants of the document (Ganeti design: predictive queue).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from ..cluster.objects import PredictiveCosts, PredictiveQueue, worded
from ..wording import type_name
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


class PolicyVerdict(NamedTuple):
    """The policy that the cluster object sets.

    ``problems``: of each parameter that is malformed, hence not in force, a sentence with its path.
    """

    policy: Policy
    problems: tuple[str, ...]


def policy_of(cluster: Mapping[str, Any]) -> Policy:
    """The policy that the cluster object sets, as `judged`.

    >>> policy_of({"predictive_queue": {"tick_seconds": 10}}).seconds_until_weightless
    300.0
    """
    return judged(cluster).policy


def judged(cluster: Mapping[str, Any]) -> PolicyVerdict:
    """The policy that the cluster object sets, and which of its parameters are malformed.

    Only a file that was changed by hand has malformed ones. Each counts as absent; the others are
    in force.

    >>> found = judged({"predictive_queue": {"tick_seconds": 10, "ticks": -1}})
    >>> found.policy.tick_seconds, found.policy.ticks
    (10.0, 30.0)
    >>> found.problems
    ('cluster.predictive_queue.ticks: expected float > 0.0',)
    """
    problems: list[str] = []
    switch = _good({ENABLED_FIELD: cluster.get(ENABLED_FIELD)}, _Switch, "cluster", problems)
    place = f"cluster.{OWN_FIELD}"
    own = _fields(cluster.get(OWN_FIELD), place, problems)
    costs = _fields(own.pop("costs", None), f"{place}.costs", problems)
    policy = Policy(
        is_predictive=switch.get(ENABLED_FIELD, Policy().is_predictive),
        **_good(own, PredictiveQueue, place, problems),
        costs=Costs(**_good(costs, PredictiveCosts, f"{place}.costs", problems)),
    )
    return PolicyVerdict(policy, tuple(problems))


class _Switch(msgspec.Struct):
    enabled_predictive_queue: bool | None = None


def _fields(found: object, place: str, problems: list[str]) -> dict[str, Any]:
    """The parameters at a place, which may be absent."""
    if found is None or isinstance(found, Mapping):
        return dict(found or {})
    problems.append(f"{place}: expected object, got {type_name(found)}")
    return {}


def _good(
    given: Mapping[str, Any], schema: type[msgspec.Struct], place: str, problems: list[str]
) -> dict[str, Any]:
    """The parameters that are set and well-formed; ``problems`` gets a sentence for each other."""
    found = {}
    for name, value in given.items():
        try:
            value = getattr(msgspec.convert({name: value}, schema), name)  # noqa: PLW2901 - converted
        except msgspec.ValidationError as error:
            problems.append(worded(place, str(error)))
        else:
            if value is not None:
                found[name] = value
    return found
