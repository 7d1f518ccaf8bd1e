"""Opcodes that arrive at LUXI are checked as Ganeti's recorded answers show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ganger.actors.ganeti import luxi_opcodes
from ganger.storage import errors, opcodes, settings
from ganger.storage.opcodes import OperationContext, catalogue
from ganger.transport.ganeti.luxi import UnreadableCallError

DATA = Path(__file__).parents[2] / "compatibility" / "data" / "luxi"
SUBMISSIONS: dict[str, dict[str, Any]] = {
    path.stem: one
    for path in sorted(DATA.glob("*.json"))
    if (one := json.loads(path.read_text())).get("request", {}).get("method", "").startswith("Subm")
}
REFUSED = sorted(name for name, one in SUBMISSIONS.items() if not one["response"]["success"])
PARSED = sorted(SUBMISSIONS.keys() - REFUSED)
OWN_WORDS = {
    "068-dep-bad-status": "depends[0]: expected words among success, error, canceled, "
    "failed, skipped, rejected, killed, timed-out, lost, always, any-failed, got 'bogus'",
}
"""Where our sentence is clearer than that of Ganeti, behind the same beginning."""

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5, "reason": []}


class OpUnlock(opcodes.Opcode, kw_only=True):
    """A user's own opcode."""

    op_id: ClassVar[str] = "OP_UNLOCK"

    door: str
    color: str | None = None

    def run(self, context: OperationContext) -> object:
        """Nothing."""


def refusal(*ops: object, method: str = "SubmitJob") -> str:
    with pytest.raises(UnreadableCallError) as raised:
        luxi_opcodes.checked(method, list(ops))
    return raised.value.text.removeprefix(f"{method}: ")


def check_recorded(name: str) -> list[list[dict[str, Any]]]:
    """What a recorded submission comes to."""
    request = SUBMISSIONS[name]["request"]
    [given] = request["args"]
    if request["method"] == "SubmitManyJobs":
        return luxi_opcodes.checked_jobs(request["method"], given)
    return [luxi_opcodes.checked(request["method"], given)]


def test_the_recording_has_both_kinds() -> None:
    assert len(REFUSED) >= 7
    assert len(PARSED) >= 9


@pytest.mark.parametrize("name", REFUSED)
def test_a_submission_that_ganeti_does_not_parse_is_refused_in_its_words(name: str) -> None:
    expected = SUBMISSIONS[name]["response"]["result"]
    if not isinstance(expected, str):
        # LuxiD has parsed it, and refused it later.
        assert check_recorded(name)
        return
    with pytest.raises(UnreadableCallError) as raised:
        check_recorded(name)
    found = f"Failed to parse request: {raised.value.text}"
    if name in OWN_WORDS:
        assert found.endswith(OWN_WORDS[name])
        common = found.removesuffix(OWN_WORDS[name])
        assert common.endswith(": ")
        assert expected.startswith(common)
    else:
        assert found == expected


@pytest.mark.parametrize("name", PARSED)
def test_a_submission_that_ganeti_parses_is_kept(name: str) -> None:
    [given] = SUBMISSIONS[name]["request"]["args"]
    jobs = given if SUBMISSIONS[name]["request"]["method"] == "SubmitManyJobs" else [given]
    assert check_recorded(name) == [
        [{key: value for key, value in op.items() if value is not None} for op in ops]
        for ops in jobs
    ]


@pytest.mark.parametrize("priority", [5, -20, "0", True, False, 0.5, [], 10**30])
def test_only_the_three_priorities_are_taken(priority: object) -> None:
    assert refusal({**DELAY, "priority": priority}).startswith(
        "Can't parse value for 'priority': Invalid string value for type OpSubmitPriority: "
    )


@pytest.mark.parametrize("priority", [-10, 0, 10])
def test_the_three_priorities_are_taken(priority: int) -> None:
    opcode = {**DELAY, "priority": priority}
    assert luxi_opcodes.checked("SubmitJob", [opcode]) == [opcode]


def test_null_stands_for_the_default_of_every_parameter_that_has_one() -> None:
    given = {**DELAY, "priority": None, "on_nodes": None, "comment": None, "depends": None}
    assert luxi_opcodes.checked("SubmitJob", [given]) == [DELAY]


def test_null_is_no_value_of_a_parameter_without_a_default() -> None:
    assert "duration: expected float, got null" in refusal({**DELAY, "duration": None})
    assert "reason: expected list, got null" in refusal({**DELAY, "reason": None})
    assert "OP_ID: expected str, got null" in refusal({**DELAY, "OP_ID": None})


def test_a_mistyped_parameter_is_named() -> None:
    assert refusal({**DELAY, "duration": "long"}) == (
        "OP_TEST_DELAY: duration: expected float, got str"
    )
    assert refusal({**DELAY, "reason": [["gnt:user", "x"]]}).startswith("OP_TEST_DELAY: reason")


def test_an_unknown_opcode_is_refused() -> None:
    assert refusal({"OP_ID": "OP_TEST_DELEY", "reason": []}) == (
        "unknown opcode 'OP_TEST_DELEY' (did you mean OP_TEST_DELAY?)"
    )


@pytest.mark.parametrize("raw", [None, 5, "OP_TEST_DELAY", [], [DELAY], True])
def test_what_is_no_object_is_no_opcode(raw: object) -> None:
    assert refusal(DELAY, raw).startswith("Unable to read JSObject, got ")


@pytest.mark.parametrize("ops", [None, 5, "x", DELAY])
def test_what_is_no_array_is_no_job(ops: object) -> None:
    for jobs in (ops, [[DELAY], ops]):
        with pytest.raises(UnreadableCallError, match="SubmitManyJobs: Unable to read array"):
            luxi_opcodes.checked_jobs("SubmitManyJobs", jobs)


@pytest.mark.parametrize(
    "depends", [5, [5], [[5]], [["x", ["success"]]], [[1, ["running"]]], [[1, "success"]]]
)
def test_malformed_dependencies_are_refused(depends: object) -> None:
    assert refusal({**DELAY, "depends": depends}).startswith("Can't parse value for 'depends': ")


def test_dependencies_go_by_both_names() -> None:
    for key in ("depend", "depends"):
        opcode = {**DELAY, key: [["7", ["success"]], [-1, []]]}
        assert luxi_opcodes.checked("SubmitJob", [opcode]) == [opcode]


def test_the_method_begins_the_text() -> None:
    with pytest.raises(UnreadableCallError, match=r"^SubmitJobToDrainedQueue: key 'reason' not"):
        luxi_opcodes.checked("SubmitJobToDrainedQueue", [{"OP_ID": "OP_TEST_DELAY"}])


def test_own_opcodes_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue._from_users, "OP_UNLOCK", OpUnlock)
    command = {"OP_ID": "OP_EXEC", "argv": ["true"], "reason": []}
    unlock: dict[str, Any] = {"OP_ID": "OP_UNLOCK", "door": "front", "reason": [], "color": None}
    assert luxi_opcodes.checked("SubmitJob", [command, unlock]) == [
        command,
        {"OP_ID": "OP_UNLOCK", "door": "front", "reason": []},
    ]
    assert refusal({"OP_ID": "OP_EXEC", "reason": []}) == (
        """key 'argv' not found, object contains only ["OP_ID","reason"]"""
    )
    assert refusal({**unlock, "key": 1}).startswith(
        """Superfluous dictionary keys: ["key"], but only ["OP_ID","color","""
    )


def test_an_opcode_without_an_operation_is_refused_when_all_are_parsed() -> None:
    known = {"OP_ID": "OP_INSTANCE_REBOOT", "reason": [], "instance_name": "web1"}
    known["reboot_type"] = "hard"
    with pytest.raises(errors.OperationMissingError) as raised:
        luxi_opcodes.checked_jobs("SubmitManyJobs", [[known], [DELAY]])
    assert raised.value.text.startswith("OP_INSTANCE_REBOOT: this opcode is known, but nothing")
    assert (raised.value.luxi_name, raised.value.error_code) == ("OpPrereqError", "wrong_input")
    with pytest.raises(UnreadableCallError, match="key 'reason' not found"):
        luxi_opcodes.checked_jobs("SubmitManyJobs", [[known], [{}]])


def test_a_refusal_is_short_and_tells_no_secret() -> None:
    many = {f"{number:0100}": 1 for number in range(10_000)}
    assert len(refusal({**DELAY, **many})) < 5_000
    assert len(refusal(many)) < 5_000
    assert len(refusal({**DELAY, "priority": "9" * 1_000_000})) < 5_000
    assert len(refusal({**DELAY, "OP_ID": "9" * 1_000_000})) < 5_000
    secret = {"OP_ID": "OP_TEST_OS_PARAMS", "reason": [], "osparams_secret": "hunter2"}
    text = refusal(secret)
    assert "osparams_secret" in text
    assert "hunter2" not in text


def test_of_too_many_opcodes_only_some_are_parsed() -> None:
    bound = settings.OPCODES_PER_JOB_MAX
    found = luxi_opcodes.checked("SubmitJob", [DELAY] * bound * 50)
    # The queue refuses that as it is.
    assert len(found) == bound + 1
    assert len(luxi_opcodes.checked("SubmitJob", [DELAY] * bound)) == bound
