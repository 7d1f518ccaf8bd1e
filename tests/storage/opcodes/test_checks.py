from __future__ import annotations

import signal
import subprocess
import sys
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core_alone import NEEDS_HIDDEN

from ganger.storage import errors, opcodes
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.opcodes import LevelNeeds, LockNeeds, catalogue, checks, declarations
from ganger.storage.plain_values import DEPTH_MAX

EXEC: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["true"]}
DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 0.5}


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


# What the lean fork server imports.


def test_importing_opcodes_and_operations_brings_nothing_costly() -> None:
    script = (
        "import sys, msgspec; before = set(sys.modules);"
        "import ganger.actors.operations.registry, ganger.storage.opcodes;"
        "print(*sorted(name for name in set(sys.modules) - before if '.' not in name))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    # Channels need these of every fork server.
    cheap = {"_struct", "errno", "fcntl", "ganger", "select", "signal", "struct", "time", "zlib"}
    assert set(done.stdout.split()) <= cheap


# Lock needs.


def test_lock_changes_stand_in_lock_order_behind_the_big_lock() -> None:
    needs = LockNeeds.of(
        {
            "network": {"shared": ["net"]},
            "node-res": {"exclusive": ["n1"]},
            "node": {"shared": ["n2"], "exclusive": ["n3", "n1"]},
            "nodegroup": {"shared": ["*"]},
            "instance": {"exclusive": ["web"]},
        }
    )
    assert needs.to_changes() == [
        ("cluster/BGL", "shared"),
        ("instance/web", "exclusive"),
        ("nodegroup/[lockset]", "shared"),
        ("node/n1", "exclusive"),
        ("node/n2", "shared"),
        ("node/n3", "exclusive"),
        ("node-res/n1", "exclusive"),
        ("network/net", "shared"),
    ]


def test_without_lock_needs_not_even_the_big_lock_is_taken() -> None:
    assert LockNeeds().to_changes() == []


def test_a_big_lock_named_by_the_opcode_is_not_taken_twice() -> None:
    needs = LockNeeds.of({"cluster": {"exclusive": ["BGL"]}, "node": {"shared": ["n1"]}})
    assert needs.to_changes() == [("cluster/BGL", "exclusive"), ("node/n1", "shared")]


@pytest.mark.parametrize(
    ("plain", "complaint"),
    [
        ({"node": {"shared": ["n1"], "exclusive": ["n1"]}}, "'n1' is both shared and exclusive"),
        ({"cluster": {"shared": ["config"]}}, "the only lock of this level is 'BGL'"),
        ({"node": {"shared": ["*", "n1"]}}, "'*' covers every name"),
        ({"node": {"shared": ["*"], "exclusive": ["n1"]}}, "'*' covers every name"),
        ({"node": {"shared": ["[lockset]"]}}, "the whole level is written '*'"),
        ({"node": {"shared": [""]}}, "length >= 1"),
        ({"nodes": {}}, "unknown field `nodes`"),
        ({"node": {"both": ["n1"]}}, "unknown field `both`"),
    ],
)
def test_contradictory_or_unknown_lock_needs_are_refused(
    plain: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(errors.OpcodeError) as caught:
        LockNeeds.of(plain)
    assert complaint in caught.value.text


def test_lock_needs_made_in_python_are_checked_too() -> None:
    lone_string: Any = "n1"
    with pytest.raises(ValueError, match=r"node\.shared: expected list of non-empty names"):
        LockNeeds(node=LevelNeeds(shared=lone_string))


names = st.lists(st.text(min_size=1).filter(lambda name: name not in ("*", "[lockset]")))


@given(shared=names, exclusive=names)
def test_every_lock_that_is_named_is_taken_once_in_its_mode(
    shared: list[str], exclusive: list[str]
) -> None:
    shared = [name for name in shared if name not in exclusive]
    needs = LockNeeds(node=LevelNeeds(shared=tuple(shared), exclusive=tuple(exclusive)))
    changes = needs.to_changes()
    wanted = {f"node/{name}": "shared" for name in shared}
    wanted |= {f"node/{name}": "exclusive" for name in exclusive}
    assert dict(changes) == ({"cluster/BGL": "shared"} | wanted if wanted else {})
    assert [name for name, _ in changes[1:]] == sorted(wanted)


# What is accepted, and how it is stored.


def test_defaults_are_filled_in_and_unset_optional_parameters_left_out() -> None:
    assert opcodes.check_opcode(DELAY) == {
        "OP_ID": "OP_TEST_DELAY",
        "priority": 0,
        "depends": None,
        "comment": None,
        "reason": [],
        "duration": 0.5,
        "on_master": True,
        "on_nodes": [],
        "repeat": 0,
        "interruptible": False,
        "no_locks": True,
    }


def test_parameters_given_as_null_count_as_unset() -> None:
    given_null = {**DELAY, "on_node_uuids": None, "dry_run": None, "depends": None}
    assert opcodes.check_opcode(given_null) == opcodes.check_opcode(DELAY)


def test_optional_parameters_that_are_set_are_stored() -> None:
    stored = opcodes.check_opcode({**DELAY, "dry_run": False, "debug_level": 2, "comment": "c"})
    assert (stored["dry_run"], stored["debug_level"], stored["comment"]) == (False, 2, "c")


def test_a_stored_opcode_passes_the_check_again_unchanged() -> None:
    submitted = {
        **EXEC,
        "env": {"B": "2", "A": "1"},
        "cwd": "/",
        "stdin": "text",
        "timeout": 5,
        "locks": {"node": {"shared": ["n1"]}},
        "depends": [[3, ["success", "error"]]],
        "reason": [["gnt:user", "why", 1]],
    }
    stored = opcodes.check_opcode(submitted)
    assert opcodes.check_opcode(stored) == stored
    assert msgspec.json.decode(msgspec.json.encode(stored)) == stored
    assert stored["locks"] == {"node": {"shared": ["n1"]}}


def test_a_checked_opcode_shares_no_state_with_the_submitted_one() -> None:
    submitted = {**EXEC, "argv": ["echo", "a"]}
    opcodes.check_opcode(submitted)["argv"].append("b")
    assert submitted == {**EXEC, "argv": ["echo", "a"]}


def test_an_opcode_that_comes_again_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = {**EXEC, "argv": ["echo", "again"], "depends": [[1, ["success"]]]}
    first = opcodes.check_opcode(submitted)
    monkeypatch.setattr(checks, "check_plain", _no_check)
    second = opcodes.check_opcode(dict(submitted))
    assert second == first
    second["depends"][0][1].append("error")
    second["argv"].append("more")
    assert opcodes.check_opcode(submitted) == first
    for other in ({"argv": ["echo", "other"]}, {"priority": 1}, {"timeout": 1}, {"timeout": 1.5}):
        with pytest.raises(errors.OpcodeError, match="checked"):
            opcodes.check_opcode({**submitted, **other})


def _no_check(*_: object) -> None:
    raise ValueError("it is checked")


def test_a_refused_opcode_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(errors.OpcodeError, match="priority"):
            opcodes.check_opcode({**EXEC, "argv": ["echo"], "priority": 100})


def test_what_is_known_of_checked_opcodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_CHECKED_MAX", 4)
    for number in range(20):
        opcodes.check_opcode({**EXEC, "argv": ["echo", f"{number}"]})
        assert len(checks._checked) <= 4 or number == 0
    large = {**EXEC, "argv": ["echo", "x" * 10_000]}
    before = dict(checks._checked)
    opcodes.check_opcode(large)
    assert checks._checked == before


def test_a_dependency_under_either_key_is_stored_as_depends() -> None:
    stored = opcodes.check_opcode({**EXEC, "depend": [[-1, ["success"]]]})
    assert stored["depends"] == [[-1, ["success"]]]
    assert "depend" not in stored


def test_a_job_id_written_as_digits_is_stored_as_a_number() -> None:
    assert opcodes.check_opcode({**EXEC, "depends": [["12", []]]})["depends"] == [[12, []]]


@pytest.mark.parametrize("priority", [-20, 0, 19])
def test_every_priority_within_bounds_is_accepted(priority: int) -> None:
    assert opcodes.check_opcode({**EXEC, "priority": priority})["priority"] == priority


def test_a_stored_opcode_is_read_back_as_a_typed_value() -> None:
    opcode = opcodes.parse(opcodes.check_opcode({**DELAY, "repeat": 3}))
    assert isinstance(opcode, catalogue.OpTestDelay)
    assert (opcode.duration, opcode.repeat, opcode.dry_run) == (0.5, 3, None)


# What is refused, and in which words.

ODDLY_NAMED: dict[Any, Any] = {**EXEC, 1: 2}

FAULTS: list[tuple[object, str]] = [
    (["OP_EXEC"], "opcode: expected dict, got list"),
    ({}, "opcode: missing OP_ID"),
    ({"OP_ID": 7}, "OP_ID: expected str, got int"),
    ({"OP_ID": "OP_EXCE"}, "unknown opcode 'OP_EXCE' (did you mean OP_EXEC?)"),
    ({"OP_ID": "nothing like it"}, "unknown opcode 'nothing like it'"),
    ({"OP_ID": "OP_EXEC"}, "OP_EXEC: missing parameter 'argv'"),
    ({**EXEC, "argv": "true"}, "OP_EXEC: argv: expected list, got str"),
    ({**EXEC, "argv": []}, "OP_EXEC: argv: expected list of length >= 1"),
    ({**EXEC, "argv": ["a", 1]}, "OP_EXEC: argv[1]: expected str, got int"),
    ({**EXEC, "argv": [""]}, "OP_EXEC: argv: the program's name is empty"),
    ({**EXEC, "argv": ["a\0b"]}, "OP_EXEC: argv: expected text without NUL characters"),
    ({**EXEC, "env": {"A=B": ""}}, "OP_EXEC: env: expected names without '=', and no NUL"),
    ({**EXEC, "env": {1: ""}}, "OP_EXEC: env: expected str as key, got int"),
    ({**EXEC, "cwd": "tmp"}, "OP_EXEC: cwd: expected an absolute path"),
    ({**EXEC, "timeout": 0}, "OP_EXEC: timeout: expected float > 0.0, got 0"),
    ({**EXEC, "timeout": float("nan")}, "OP_EXEC: timeout: expected a finite number, got nan"),
    ({**EXEC, "timeout": float("inf")}, "OP_EXEC: timeout: expected a finite number, got inf"),
    ({**EXEC, "ok_exit_codes": [256]}, "OP_EXEC: ok_exit_codes[0]: expected int <= 255"),
    ({**EXEC, "ok_exit_codes": []}, "OP_EXEC: ok_exit_codes: expected list of length >= 1"),
    ({**EXEC, "stdin": "\ud800"}, "OP_EXEC: stdin: expected text that UTF-8 can hold"),
    ({**EXEC, "stdin": b"x"}, "OP_EXEC: stdin: expected plain data, got bytes"),
    ({**EXEC, "comment": 2**63}, "OP_EXEC: comment: expected an integer of at most 64 bits"),
    ({**EXEC, "priority": 20}, "OP_EXEC: priority: expected int <= 19, got 20"),
    ({**EXEC, "priority": -21}, "OP_EXEC: priority: expected int >= -20, got -21"),
    ({**EXEC, "priority": True}, "OP_EXEC: priority: expected int, got bool"),
    ({**EXEC, "debug_level": -1}, "OP_EXEC: debug_level: expected int >= 0, got -1"),
    ({**EXEC, "reason": [["a", "b"]]}, "OP_EXEC: reason[0]: expected list of length 3, got 2"),
    (ODDLY_NAMED, "OP_EXEC: expected str as parameter name, got int"),
    ({**EXEC, "foo": 1}, "OP_EXEC: unknown parameter 'foo' (known: argv, env, cwd, "),
    ({**EXEC, "locks": {"nodes": {}}}, "OP_EXEC: locks: unknown key 'nodes' (known: cluster, "),
    (
        {**EXEC, "locks": {"node": {"shared": ["a"], "exclusive": ["a"]}}},
        "OP_EXEC: locks: node: 'a' is both shared and exclusive",
    ),
    ({**DELAY, "repeat": 1.5}, "OP_TEST_DELAY: repeat: expected int, got float"),
    (
        {**DELAY, "on_nodes": ["[lockset]"]},
        "OP_TEST_DELAY: node.exclusive: the whole level is written '*'",
    ),
    (
        {**EXEC, "locks": {"node": {"shared": ["n7\x1b[2J"]}}},
        "OP_EXEC: locks: expected no control characters, got 'node/n7\\x1b[2J'",
    ),
    (
        {**DELAY, "on_nodes": ["n7\n"]},
        "OP_TEST_DELAY: locks: expected no control characters, got 'node/n7\\n'",
    ),
    ({**EXEC, "env": nested(DEPTH_MAX + 1)}, f"nested more than {DEPTH_MAX} levels deep"),
]


@pytest.mark.parametrize(("raw", "words"), FAULTS, ids=[words for _, words in FAULTS])
def test_a_refusal_names_the_parameter_and_what_was_expected(raw: object, words: str) -> None:
    with pytest.raises(errors.OpcodeError) as caught:
        opcodes.check_opcode(raw)
    assert words in caught.value.text
    assert "\n" not in caught.value.text


def test_a_refusal_quotes_at_most_a_line_of_the_value() -> None:
    for raw in (
        {"OP_ID": "O" * 10**6},
        {**EXEC, "k" * 10**6: 1},
        {**EXEC, "env": {"k" * 10**6: 1}},
    ):
        with pytest.raises(errors.OpcodeError) as caught:
            opcodes.check_opcode(raw)
        assert len(caught.value.text) < 320


@NEEDS_HIDDEN
def test_an_unknown_choice_is_refused_with_the_choices() -> None:
    with pytest.raises(errors.OpcodeError) as caught:
        opcodes.parse({"OP_ID": "OP_TAGS_SET", "kind": "disk", "tags": []})
    assert caught.value.text == (
        "OP_TAGS_SET: kind: expected one of cluster, instance, network, node, nodegroup, got 'disk'"
    )


class OpGuarded(opcodes.Opcode, kw_only=True):
    op_id = "OP_GUARDED"
    secret_fields = ("pin",)
    private_fields = ("word",)
    pin: Annotated[int, msgspec.Meta(lt=1000)] = 0
    word: Literal["sesame"] = "sesame"
    size: Annotated[int, msgspec.Meta(lt=1000)] = 0


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        ("size", 4711, "size: expected int <= 999, got 4711"),
        ("pin", 4711, "pin: expected int <= 999"),
        ("word", "abracadabra", "word: expected one of sesame"),
    ],
)
def test_values_of_secret_and_private_parameters_are_not_quoted(
    parameter: str, value: object, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalogue._from_users, "OP_GUARDED", OpGuarded)
    with pytest.raises(errors.OpcodeError) as caught:
        opcodes.parse({"OP_ID": "OP_GUARDED", parameter: value})
    assert caught.value.text == f"OP_GUARDED: {words}"


@NEEDS_HIDDEN
def test_a_set_is_stored_in_order() -> None:
    codes = [f"ENODE{end}" for end in ("VERSION", "TIME", "SSH", "RPC", "OS", "NET", "LVM", "HV")]
    opcode = opcodes.parse({"OP_ID": "OP_CLUSTER_VERIFY", "ignore_errors": [*codes, *codes]})
    assert checks._stored_form(opcode)["ignore_errors"] == sorted(codes)


@NEEDS_HIDDEN
def test_a_known_opcode_without_an_operation_is_refused_as_that() -> None:
    with pytest.raises(errors.OperationMissingError) as caught:
        opcodes.check_opcode({"OP_ID": "OP_INSTANCE_REBOOT"})
    assert caught.value.text == (
        "OP_INSTANCE_REBOOT: this opcode is known, but nothing on this system can run it"
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["argv", "env", "locks", "depends", "depend", "reason", "timeout", "x"]),
        json_values,
    )
)
def test_whatever_is_submitted_is_either_storable_or_a_bad_request(
    fields: dict[str, Any],
) -> None:
    try:
        stored = opcodes.check_opcode({"OP_ID": "OP_EXEC", **fields})
    except errors.BadRequestError:
        return
    assert msgspec.json.decode(msgspec.json.encode(stored)) == stored


# A declaration whose own checks are at fault.


class UntellableError(Exception):
    def __str__(self) -> str:
        raise LookupError


class OpBroken(opcodes.Opcode, kw_only=True):
    op_id = "OP_BROKEN"
    where: str

    def __post_init__(self) -> None:
        match self.where:
            case "check":
                raise KeyError(self.where)
            case "exit":
                raise SystemExit(2)
            case "interrupt":
                raise KeyboardInterrupt
            case "generator":
                raise GeneratorExit
            case "text":
                raise UntellableError

    def lock_needs(self) -> LockNeeds:
        if self.where == "locks":
            raise RuntimeError("no locks today")
        return LockNeeds()

    def run(self, context: opcodes.OperationContext) -> object:
        return context.job_id

    @classmethod
    def summary_value(cls, fields: Any) -> object:  # type: ignore[override] # it is at fault
        if fields["where"] == "text":
            return UntellableError()
        raise GeneratorExit if fields["where"] == "generator" else RuntimeError(fields)


@pytest.fixture
def _broken_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue._from_users, "OP_BROKEN", OpBroken)


@pytest.mark.usefixtures("_broken_is_known")
def test_opcodes_of_users_are_checked_each_time_and_kept_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = dict(checks._checked)
    submitted = {"OP_ID": "OP_BROKEN", "where": "nowhere"}
    opcodes.check_opcode(submitted)
    monkeypatch.setattr(OpBroken, "lock_needs", _no_check)
    with pytest.raises(errors.OpcodeError, match="checked"):
        opcodes.check_opcode(submitted)
    assert checks._checked == kept


@pytest.mark.usefixtures("_broken_is_known")
@pytest.mark.parametrize("where", ["check", "locks", "exit", "text", "interrupt", "generator"])
def test_a_fault_in_a_users_declaration_is_a_bad_request(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    # The daemon has handlers of its own, which raise nothing.
    monkeypatch.setattr(signal, "getsignal", lambda _: lambda *_: None)
    assert opcodes.check_opcode({"OP_ID": "OP_BROKEN", "where": ""})["where"] == ""
    with pytest.raises(errors.OpcodeError, match=r"OP_BROKEN: [A-Z][A-Za-z]+"):
        opcodes.check_opcode({"OP_ID": "OP_BROKEN", "where": where})


@pytest.mark.usefixtures("_broken_is_known")
def test_ctrl_c_ends_a_command_that_checks_an_opcode() -> None:
    with pytest.raises(KeyboardInterrupt):
        opcodes.check_opcode({"OP_ID": "OP_BROKEN", "where": "interrupt"})


@pytest.mark.usefixtures("_broken_is_known")
def test_a_fault_in_a_users_summary_leaves_the_opcodes_name() -> None:
    assert opcodes.summary({"OP_ID": "OP_BROKEN", "where": ""}) == "BROKEN"
    assert opcodes.summary({"OP_ID": "OP_BROKEN", "where": "generator"}) == "BROKEN"
    assert "whose text fails" in opcodes.summary({"OP_ID": "OP_BROKEN", "where": "text"})


# Dependencies.


def test_dependencies_are_read_from_either_key() -> None:
    assert opcodes.dependencies({"depends": [[7, ["success", "error"]], [-1, []]]}) == [
        (7, ("success", "error")),
        (-1, ()),
    ]
    assert opcodes.dependencies({"depend": [[0, ["canceled"]]], "depends": None}) == [
        (0, ("canceled",))
    ]
    assert opcodes.dependencies({"depends": None}) == opcodes.dependencies({}) == []


def test_a_dependency_names_a_job_up_to_the_bounds_of_ids() -> None:
    given = [[2**63 - 1, []], [-(2**63), []], ["9" * 18, []]]
    found = opcodes.dependencies({"depends": given})
    assert found == [(2**63 - 1, ()), (-(2**63), ()), (10**18 - 1, ())]


def test_dependencies_may_name_every_final_status() -> None:
    finals = {status for status in JobStatus if status.is_final}
    assert set(declarations.FINAL_STATUSES) == finals


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"depends": [["9" * 19, []]]}, "depends[0]: this number is too large for a job id"),
        ({"depends": "1"}, "depends: expected list, got str"),
        ({"depends": [7]}, "depends[0]: expected [job id, [statuses]]"),
        ({"depends": [[1, []], [7]]}, "depends[1]: expected [job id, [statuses]]"),
        ({"depends": [[7, "success"]]}, "depends[0]: expected [job id, [statuses]]"),
        ({"depend": [["x", []]]}, "depend[0]: expected int as job id, got str"),
        ({"depends": [[True, []]]}, "depends[0]: expected int as job id, got bool"),
        ({"depends": [[2**63, []]]}, "depends[0]: this number is too large for a job id"),
        ({"depends": [["9" * 5000, []]]}, "depends[0]: this number is too large for a job id"),
        ({"depends": [[7, ["running"]]]}, "words among success, error, canceled, failed, "),
        ({"depends": [[7, [["a"]]]]}, "lost, always, any-failed, got list"),
        ({"depends": [[7, ["failed", "any-failed"]]]}, "any-failed goes with no other word"),
        ({"depends": [[7, []]], "depend": [[7, []]]}, "use one of the two"),
    ],
)
def test_a_malformed_dependency_is_refused_by_its_place(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.DependencyError) as caught:
        opcodes.dependencies(fields)
    assert words in caught.value.text
    with pytest.raises(errors.DependencyError, match=r"^OP_EXEC: depend"):
        opcodes.check_opcode({**EXEC, **fields})


# Summaries.


@NEEDS_HIDDEN
@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "web1"}, "INSTANCE_CREATE(web1)"),
        ({"OP_ID": "OP_CLUSTER_VERIFY", "verbose": True}, "CLUSTER_VERIFY"),
        ({"OP_ID": "OP_NODE_ADD", "node_name": ["a", "b"]}, "NODE_ADD(a,b)"),
        ({"OP_ID": "OP_NODE_ADD"}, "NODE_ADD"),
        ({"OP_ID": "OP_TAGS_GET", "kind": "nodegroup", "name": "g"}, "TAGS_GET(TagKindGroup)"),
        ({"OP_ID": "OP_TAGS_GET", "kind": ["x"]}, "TAGS_GET"),
        ({"OP_ID": "OP_TEST_ALLOCATOR"}, "TEST_ALLOCATOR(None)"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 0.001}, "TEST_DELAY(1000000 ns)"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 60}, "TEST_DELAY(60000000000 ns)"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": -1.0}, "TEST_DELAY(-1000000000 ns)"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1e308}, "TEST_DELAY"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 10**400}, "TEST_DELAY"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": "long"}, "TEST_DELAY"),
        ({"OP_ID": "OP_EXEC", "argv": ["rm", "-r", "/x y"]}, "EXEC(rm -r /x y)"),
        ({"OP_ID": "OP_EXEC", "argv": ["sh", "-c", "a\n\tb\x1b[1m"]}, "EXEC(sh -c a b?[1m)"),
        ({"OP_ID": "OP_EXEC", "argv": 5}, "EXEC"),
        ({"OP_ID": "OP_FROM_THE_FUTURE", "name": "x"}, "FROM_THE_FUTURE"),
        ({"OP_ID": None}, "INVALID_OP"),
        ({"OP_ID": ""}, "INVALID_OP"),
        ({}, "INVALID_OP"),
    ],
)
def test_a_summary_shows_the_opcodes_name_and_its_summary_field(
    fields: dict[str, Any], shown: str
) -> None:
    assert opcodes.summary(fields) == shown


def test_a_long_command_is_cut_in_its_summary() -> None:
    shown = opcodes.summary({"OP_ID": "OP_EXEC", "argv": ["echo", "x" * 100]})
    assert shown == f"EXEC(echo {'x' * 46}...)"
    assert len(shown) == 60


def test_a_command_that_just_fits_is_not_cut() -> None:
    assert opcodes.summary({"OP_ID": "OP_EXEC", "argv": ["x" * 54]}) == f"EXEC({'x' * 54})"


@given(
    st.sampled_from(["OP_EXEC", "OP_TEST_DELAY", "OP_TAGS_GET", "OP_NODE_ADD", "OP_X"]),
    st.sampled_from(["argv", "duration", "kind", "node_name"]),
    json_values,
)
def test_a_summary_never_fails(op_id: str, field: str, value: object) -> None:
    shown = opcodes.summary({"OP_ID": op_id, field: value})
    assert shown.startswith(op_id.removeprefix("OP_"))


# Secrets.


@NEEDS_HIDDEN
def test_secret_values_are_replaced_and_others_kept() -> None:
    fields = {
        "OP_ID": "OP_INSTANCE_REINSTALL",
        "instance_name": "web1",
        "osparams_private": {"a": "kept"},
        "osparams_secret": {"root_password": "hidden", "unset": None},
    }
    assert opcodes.redacted(fields) == {
        **fields,
        "osparams_secret": {"root_password": "<redacted>", "unset": None},
    }


def test_an_unknown_opcode_is_left_as_it_is() -> None:
    fields = {"OP_ID": "OP_FROM_THE_FUTURE", "secret": "s"}
    assert opcodes.redacted(fields) == fields


@pytest.mark.parametrize(
    ("fields", "lost"),
    [
        ({"OP_ID": "OP_INSTANCE_CREATE", "osparams_secret": {"a": "<redacted>"}}, True),
        ({"OP_ID": "OP_INSTANCE_CREATE", "osparams_secret": {"a": "x", "b": ["<redacted>"]}}, True),
        ({"OP_ID": "OP_INSTANCE_CREATE", "osparams_secret": "<redacted>"}, True),
        ({"OP_ID": "OP_INSTANCE_CREATE", "osparams_secret": {"a": "x", "unset": None}}, False),
        ({"OP_ID": "OP_INSTANCE_CREATE", "osparams_secret": {}}, False),
        ({"OP_ID": "OP_EXEC", "argv": ["echo", "<redacted>"]}, False),
        ({"OP_ID": "OP_OF_SOMEBODY", "osparams_secret": {"a": {"b": "<redacted>"}}}, True),
        ({}, False),
    ],
)
def test_a_secret_that_was_not_stored_is_noticed_however_deep_it_lies(
    fields: dict[str, Any], *, lost: bool
) -> None:
    assert opcodes.lost_secret(fields) == ("osparams_secret" if lost else None)
