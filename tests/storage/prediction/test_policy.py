"""The policy that the cluster's parameters set, and which values are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.clusters import made_configuration

from ganger.storage.cluster.objects import Kind, PredictiveCosts, PredictiveQueue, schema_problem
from ganger.storage.prediction.lock_types import Costs
from ganger.storage.prediction.policy import ENABLED_FIELD, OWN_FIELD, Policy, policy_of


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
    text = schema_problem(Kind.CLUSTER, found["uuid"], found)
    assert text is not None
    assert text.replace(" | null", "") == f"cluster.predictive_queue{problem}"
    assert policy_of(found) == Policy()


def test_a_switch_that_is_no_truth_value_is_refused_and_counts_as_absent() -> None:
    found = made_configuration()["cluster"] | {ENABLED_FIELD: "no"}
    text = schema_problem(Kind.CLUSTER, found["uuid"], found)
    assert text == "cluster.enabled_predictive_queue: expected bool | null, got str"
    assert policy_of(found).is_predictive


def test_a_policy_is_a_plain_value() -> None:
    policy = policy_of({OWN_FIELD: {"costs": {"blocks": 4}}})
    assert msgspec.convert(msgspec.to_builtins(policy), Policy) == policy
