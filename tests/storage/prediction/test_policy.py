"""The policy that the cluster's parameters set, and which values are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clusters import made_configuration
from tests.core_alone import NEEDS_HIDDEN

from ganger.storage.cluster.objects import (
    ObjectKind,
    PredictiveCosts,
    PredictiveQueue,
    schema_problem,
)
from ganger.storage.prediction.lock_types import Costs
from ganger.storage.prediction.policy import ENABLED_FIELD, OWN_FIELD, Policy, judged, policy_of


def test_without_parameters_the_document_holds() -> None:
    policy = policy_of({})
    assert policy == policy_of({OWN_FIELD: {}}) == Policy()
    assert (policy.is_predictive, policy.tick_seconds, policy.ticks, policy.base) == (
        True,
        30,
        30,
        1,
    )
    assert msgspec.structs.astuple(policy.costs) == (0, 0.3, 0.5, 1.5, 3)
    assert policy.seconds_until_weightless == 900


def test_each_parameter_is_one_field_of_the_cluster() -> None:
    own = {
        "holds_back": True,
        "all_opcodes": True,
        "tick_seconds": 10,
        "ticks": 6.5,
        "base": 2,
        "costs": {"blocks": 9, "free": 0.1},
    }
    expected = Policy(
        is_predictive=False,
        holds_back=True,
        all_opcodes=True,
        tick_seconds=10,
        ticks=6.5,
        base=2,
        costs=Costs(free=0.1, blocks=9),
    )
    assert policy_of({ENABLED_FIELD: False, OWN_FIELD: own}) == expected
    assert policy_of({ENABLED_FIELD: False, OWN_FIELD: own}).seconds_until_weightless == 65


def test_policy_and_configuration_have_the_same_parameters() -> None:
    assert {*PredictiveQueue.__struct_fields__, "is_predictive"} == {*Policy.__struct_fields__}
    assert PredictiveCosts.__struct_fields__ == Costs.__struct_fields__


@NEEDS_HIDDEN
@pytest.mark.parametrize(
    ("own", "problem"),
    [
        (5, ": expected object, got int"),
        ({"tick_seconds": 0}, ".tick_seconds: expected float > 0.0"),
        ({"tick_seconds": 3_601}, ".tick_seconds: expected float <= 3600.0"),
        ({"ticks": -1}, ".ticks: expected float > 0.0"),
        ({"ticks": 1_001}, ".ticks: expected float <= 1000.0"),
        ({"base": -0.1}, ".base: expected float >= 0.0"),
        ({"base": float("nan")}, ".base: expected float >= 0.0"),
        ({"holds_back": 1}, ".holds_back: expected bool, got int"),
        ({"all_opcodes": "yes"}, ".all_opcodes: expected bool, got str"),
        ({"tick": 30}, ": object contains unknown field tick"),
        ({"costs": {"block": 3}}, ".costs: object contains unknown field block"),
        ({"costs": {"may_block": float("inf")}}, ".costs.may_block: expected float <= 1000000.0"),
    ],
)
def test_impossible_values_get_one_line_and_count_as_absent(own: Any, problem: str) -> None:
    found = made_configuration()["cluster"] | {OWN_FIELD: own}
    text = schema_problem(ObjectKind.CLUSTER, found["uuid"], found)
    assert text is not None
    assert text.replace(" | null", "") == f"cluster.predictive_queue{problem}"
    assert judged(found).policy == Policy()
    [named] = judged(found).problems
    assert named.replace(" | null", "") == f"cluster.predictive_queue{problem}"


GOOD = {
    "holds_back": False, "all_opcodes": False, "tick_seconds": 7.0, "ticks": 9.0, "base": 2.5,
}  # fmt: skip
GOOD_COSTS = {"free": 0.1, "spare_shared": 0.2, "may_block": 1.0, "blocks": 5.0}


@given(
    st.sets(st.sampled_from(sorted(GOOD))),
    st.sets(st.sampled_from(sorted(GOOD_COSTS))),
    st.sampled_from([-1, "x", [], {"a": 1}, float("nan"), 10**30, b""]),
)
def test_malformed_parameters_leave_the_others_in_force(
    wrong: set[str], wrong_costs: set[str], nonsense: Any
) -> None:
    own: dict[str, Any] = GOOD | dict.fromkeys(wrong, nonsense)
    own["costs"] = GOOD_COSTS | dict.fromkeys(wrong_costs, nonsense)
    policy, problems = judged({ENABLED_FIELD: nonsense, OWN_FIELD: own})
    assert policy.is_predictive
    for name, value in GOOD.items():
        assert getattr(policy, name) == (getattr(Policy(), name) if name in wrong else value)
    for name, value in GOOD_COSTS.items():
        expected = getattr(Costs(), name) if name in wrong_costs else value
        assert getattr(policy.costs, name) == expected
    assert len(problems) == 1 + len(wrong) + len(wrong_costs)
    assert all("\n" not in one for one in problems)


def test_costs_that_are_no_object_leave_the_others_in_force() -> None:
    policy, problems = judged({OWN_FIELD: {"ticks": 4, "costs": [1]}})
    assert (policy.ticks, policy.costs) == (4, Costs())
    assert problems == ("cluster.predictive_queue.costs: expected object, got list",)


@NEEDS_HIDDEN
def test_a_switch_that_is_no_truth_value_is_refused_and_counts_as_absent() -> None:
    found = made_configuration()["cluster"] | {ENABLED_FIELD: "no"}
    text = schema_problem(ObjectKind.CLUSTER, found["uuid"], found)
    assert text == "cluster.enabled_predictive_queue: expected bool | null, got str"
    assert policy_of(found).is_predictive


def test_a_policy_is_a_plain_value() -> None:
    policy = policy_of({OWN_FIELD: {"costs": {"blocks": 4}}})
    assert msgspec.convert(msgspec.to_builtins(policy), Policy) == policy
