"""What is unknown, malformed or of users; questions to the configuration."""

from __future__ import annotations

import signal
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clusters import made_configuration, uuid_of
from tests.core_alone import NEEDS_HIDDEN
from tests.storage.prediction.shown import NAMES, shown

from ganger.storage.cluster.configuration import Configuration
from ganger.storage.opcodes import LockNeeds, Opcode, catalogue
from ganger.storage.prediction.declared import (
    DECLARED,
    answer_to,
    answer_to_job,
    forecast,
    forecast_of_job,
    question_of,
    question_of_job,
)
from ganger.storage.prediction.declared_needs import NAMES_MAX, LookupSnapshot
from ganger.storage.prediction.lock_types import NO_LOCKS, UNKNOWN, LockForecast

DRBD = "instance0"


@NEEDS_HIDDEN
def test_a_target_of_disks_that_every_node_reaches_is_a_node_or_all_of_them() -> None:
    document = made_configuration(nodes=6, instances=2)
    for disk in document["disks"].values():
        disk |= {"dev_type": "rbd", "logical_id": ["rbd", "volume"], "children": []}
    names = LookupSnapshot(Configuration.load(document))
    opcode = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": DRBD}
    assert shown(forecast(opcode, names)) == "instance X i0, node X*, node_res X*"
    to = {**opcode, "target_node": "node3"}
    assert shown(forecast(to, names)) == "instance X i0, node X n0 n3, node_res X n0 n3"


@pytest.mark.parametrize(
    ("op_id", "parameters"),
    [
        ("OP_INSTANCE_REBOOT", {"instance_name": "nobody"}),
        ("OP_INSTANCE_REBOOT", {}),
        ("OP_INSTANCE_GROW_DISK", {"instance_name": "nobody"}),
        ("OP_INSTANCE_FAILOVER", {"instance_name": "nobody"}),
        ("OP_NODE_MIGRATE", {"node_name": "nobody"}),
        ("OP_GROUP_EVACUATE", {"group_name": "nobody", "target_groups": ["group1"]}),
        ("OP_NETWORK_SET_PARAMS", {"network_name": "nobody"}),
        ("OP_TAGS_SET", {"kind": "node", "tags": []}),
        ("OP_QUERY", {"what": "node", "use_locking": True, "qfilter": ["==", "name", "nobody"]}),
        ("OP_QUERY", {"what": "node", "use_locking": True, "qfilter": ["bad"], "fields": ["x"]}),
    ],
)
def test_what_the_configuration_does_not_have_is_unknown(
    op_id: str, parameters: dict[str, Any]
) -> None:
    opcode = {"OP_ID": op_id, **parameters}
    assert forecast(opcode, NAMES) == forecast(opcode) != NO_LOCKS


@pytest.mark.parametrize(
    "opcode",
    [
        None,
        [],
        "OP_EXEC",
        {},
        {"OP_ID": 5},
        {"OP_ID": "OP_OF_ANOTHER_AGE"},
        {"OP_ID": "OP_EXEC", "locks": {"planet": {"shared": ["mars"]}}},
        {"OP_ID": "OP_EXEC", "locks": [1]},
        {"OP_ID": "OP_TEST_DELAY", "on_nodes": "n1"},
        {"OP_ID": "OP_TEST_DELAY", "on_nodes": [""]},
        {"OP_ID": "OP_TEST_DELAY", "on_master": "yes"},
        {"OP_ID": "OP_INSTANCE_REBOOT", "instance_name": 5},
        {"OP_ID": "OP_INSTANCE_CREATE"},
        {"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": ["a"]},
        {"OP_ID": "OP_GROUP_ADD"},
        {"OP_ID": "OP_NODE_QUERYVOLS", "nodes": [1]},
        {"OP_ID": "OP_TAGS_SET", "kind": "planet"},
    ],
)
def test_a_malformed_opcode_may_take_any_lock_and_has_no_question(opcode: object) -> None:
    assert forecast(opcode) == forecast(opcode, NAMES) == UNKNOWN
    assert question_of(opcode) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["pnode", "node", "exclusive"]), inner, max_size=2)
    ),
    max_leaves=4,
)
PARAMETERS = sorted({name for _, reads in DECLARED.values() for name in reads} | {"locks"})


@settings(max_examples=60)
@given(st.sampled_from(sorted(DECLARED)), st.dictionaries(st.sampled_from(PARAMETERS), VALUES))
def test_whatever_stands_in_a_job_file_has_a_forecast(op_id: str, given: dict[str, Any]) -> None:
    opcode = {"OP_ID": op_id, **given}
    assert isinstance(forecast(opcode), LockForecast)
    assert isinstance(forecast(opcode, NAMES), LockForecast)
    question = question_of(opcode)
    if question is not None:
        assert answer_to(question, NAMES) == forecast(opcode, NAMES)


@NEEDS_HIDDEN
def test_a_damaged_configuration_leaves_forecasts_unknown() -> None:
    document = made_configuration()
    document["instances"] = {"u": {"name": "i"}, "v": 5}
    document["nodes"][uuid_of("nodes", 0)].pop("group")
    names = LookupSnapshot(Configuration.load(document))
    for opcode in (
        {"OP_ID": "OP_NODE_EVACUATE", "node_name": "node0"},
        {"OP_ID": "OP_INSTANCE_REBOOT", "instance_name": "other"},
        {"OP_ID": "OP_GROUP_SET_PARAMS", "group_name": "group0"},
    ):
        question = question_of(opcode)
        assert question is not None
        assert answer_to(question, names) == UNKNOWN


# ---------------------------------------------------------------- questions


@NEEDS_HIDDEN
def test_opcodes_with_the_same_locks_ask_the_same() -> None:
    one = {"OP_ID": "OP_INSTANCE_REBOOT", "instance_name": "a", "reboot_type": "soft"}
    other = {"comment": "b", "OP_ID": "OP_INSTANCE_REBOOT", "instance_name": "a", "priority": 5}
    assert question_of(one) == question_of(other)
    assert question_of(one) != question_of({**one, "instance_name": "b"})


@pytest.mark.parametrize(
    "opcode",
    [
        {"OP_ID": "OP_EXEC", "argv": ["true"]},
        {"OP_ID": "OP_TEST_DELAY", "duration": 1, "on_master": False},
        {"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"},
        {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": []},
        {"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "a"},
        {"OP_ID": "OP_NODE_ADD", "node_name": "n"},
        {"OP_ID": "OP_GROUP_ADD", "group_name": "g"},
    ],
)
def test_what_is_known_without_the_configuration_asks_nothing(opcode: dict[str, Any]) -> None:
    assert question_of(opcode) is None


@NEEDS_HIDDEN
def test_a_question_has_neither_secrets_nor_arguments() -> None:
    secret = {"osparams_secret": {"root": "hunter2"}, "disks": ["hunter2"], "pnode": "node0"}
    opcodes = [
        {"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": [secret]},
        {"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "a", **secret},
        {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "a", "osparams_private": secret},
    ]
    for opcode in opcodes:
        question = question_of(opcode)
        assert question is not None
        assert "hunter2" not in question


def test_an_answer_to_something_else_is_unknown() -> None:
    assert answer_to("{", NAMES) == UNKNOWN
    assert answer_to("[1]", NAMES) == UNKNOWN


# ---------------------------------------------------------------- jobs

REBOOT = {"OP_ID": "OP_INSTANCE_REBOOT", "instance_name": DRBD}
MIGRATE = {"OP_ID": "OP_NODE_MIGRATE", "node_name": "node2"}
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 1, "on_nodes": ["a"]}
JOBS: list[tuple[list[Any], str, str]] = [
    ([], "", ""),
    ([REBOOT], "instance X i0", "instance X i0"),
    ([DELAY], "node X a n0", "node X a n0"),
    ([REBOOT, MIGRATE], "instance X i0", "instance X i0, node s n2"),
    ([DELAY, REBOOT], "node X a n0", "instance X i0, node X a n0"),
    ([MIGRATE, DELAY, REBOOT, REBOOT], "node s n2", "instance X i0, node X a n0"),
]


@NEEDS_HIDDEN
@pytest.mark.parametrize(("ops", "first", "of_all"), JOBS)
def test_a_job_takes_what_its_first_opcode_takes_and_then_what_all_take(
    ops: list[Any], first: str, of_all: str
) -> None:
    found = forecast_of_job(ops, NAMES)
    assert (shown(found.first), shown(found.of_all)) == (first, of_all)


@given(st.lists(st.sampled_from([REBOOT, MIGRATE, DELAY, {"OP_ID": 5}, {"OP_ID": "OP_EXEC"}])))
def test_the_answer_to_a_job_is_its_resolved_forecast(ops: list[Any]) -> None:
    question = question_of_job(ops)
    assert (question is None) == all(question_of(op) is None for op in ops)
    if question is None:
        assert forecast_of_job(ops) == forecast_of_job(ops, NAMES)
    else:
        assert answer_to_job(question, NAMES) == forecast_of_job(ops, NAMES)


@NEEDS_HIDDEN
def test_a_job_of_many_opcodes_asks_as_little_as_its_locks_differ() -> None:
    many = question_of_job([REBOOT, DELAY] * 500)
    assert many is not None
    assert many == question_of_job([REBOOT, DELAY])
    assert len(many) < 200


def test_an_answer_to_something_else_than_a_job_is_unknown() -> None:
    for text in ("{", "5", "[", '[{"forecast": 5}]'):
        assert answer_to_job(text, NAMES).first == UNKNOWN


# ---------------------------------------------------------------- opcodes of users


class OpPlain(Opcode, kw_only=True):
    op_id: ClassVar[str] = "OP_PLAIN"


_RAISED = {
    "ends": SystemExit(3),
    "interrupts": KeyboardInterrupt(),
    "generates": GeneratorExit(),
    "own": type("OwnError", (BaseException,), {})("not even an Exception"),
}


class OpOwn(Opcode, kw_only=True):
    op_id: ClassVar[str] = "OP_OWN"
    name: str = "n1"
    how: str = "needs"

    def lock_needs(self) -> LockNeeds:
        if self.how == "broken":
            raise SystemError("a plug-in's own code may raise anything")
        if self.how in _RAISED:
            raise _RAISED[self.how]
        return LockNeeds.of({"node": {"exclusive": [self.name]}})


class OpOther(OpOwn, kw_only=True):
    op_id: ClassVar[str] = "OP_OTHER"

    def lock_forecast(self) -> LockNeeds:
        return LockNeeds.of(
            {"node": {"shared": ["?"], "exclusive": [self.name]}, "network": {"shared": ["?", "w"]}}
        )


@pytest.fixture(autouse=True)
def of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for declared in (OpPlain, OpOwn, OpOther):
        monkeypatch.setitem(catalogue._from_users, declared.op_id, declared)


def test_an_opcode_of_a_user_declares_its_locks_by_its_needs() -> None:
    assert forecast({"OP_ID": "OP_PLAIN"}) is NO_LOCKS
    assert shown(forecast({"OP_ID": "OP_OWN", "name": "n7"})) == "node X n7"


def test_an_opcode_of_a_user_may_declare_something_else() -> None:
    assert shown(forecast({"OP_ID": "OP_OTHER"})) == "node X?, network s?"


FAULTS: list[dict[str, Any]] = [
    *({"how": how} for how in ("broken", *_RAISED)),
    {"name": 5},
    {"name": ""},
    {"x": 1},
]


@pytest.mark.parametrize("more", FAULTS)
def test_an_opcode_of_a_user_whose_declaration_fails_may_take_any_lock(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    # The daemon has handlers of its own, which raise nothing.
    monkeypatch.setattr(signal, "getsignal", lambda _: lambda *_: None)
    assert forecast({"OP_ID": "OP_OWN", **more}) == UNKNOWN


def test_ctrl_c_still_ends_a_command_that_reads_forecasts() -> None:
    with pytest.raises(KeyboardInterrupt):
        forecast({"OP_ID": "OP_OWN", "how": "interrupts"})


@NEEDS_HIDDEN
def test_more_names_than_a_forecast_holds_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganger.storage.prediction.declared_needs.NAMES_MAX", 2)
    opcode = {"OP_ID": "OP_NODE_QUERYVOLS", "nodes": ["node0", "node1", "node2"]}
    assert shown(forecast(opcode, NAMES)) == "node s?"
    opcode["nodes"] = ["node0", "node1"]
    assert shown(forecast(opcode, NAMES)) == "node s n0 n1"


def test_a_command_with_more_names_than_a_forecast_holds_may_take_any_of_the_level() -> None:
    def locks(count: int) -> dict[str, Any]:
        names = [f"n{number}" for number in range(count)]
        needs = {
            "node": {"shared": names[:2], "exclusive": names[2:]},
            "network": {"shared": ["w"]},
        }
        return {"OP_ID": "OP_EXEC", "argv": ["true"], "locks": needs}

    found = forecast(locks(NAMES_MAX))
    assert len(found.node.names) == NAMES_MAX - 2
    wide = forecast(locks(NAMES_MAX + 1))
    assert shown(wide) == "node X?, network s w"
    assert wide.big_lock == found.big_lock == "shared"


def test_a_forecast_is_small() -> None:
    found = forecast({"OP_ID": "OP_INSTANCE_GROW_DISK", "instance_name": DRBD}, NAMES)
    assert len(msgspec.msgpack.encode(found)) < 400
