"""From a submission to jobs that can be stored; every kind of bad input, word by word."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core_alone import NEEDS_HIDDEN

from ganger.actors.admission import submitting
from ganger.actors.admission.submitting import Draft
from ganger.actors.store.job_classes import row_of
from ganger.actors.store.job_rows import Phase
from ganger.storage import errors, opcodes, settings
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import DEPENDENCY_WORDS
from ganger.storage.opcodes import catalogue
from ganger.storage.queue_files import job_files
from ganger.transport.messages import JobSpec

NOW = 1_700_000_000.5

DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5}
EXEC: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["true"]}


def drafts(*specs: JobSpec, first_id: int = 100, key: str | None = None) -> list[Draft]:
    return submitting.drafts(specs, first_id=first_id, now=NOW, key=key)


def spec(*ops: dict[str, Any], **fields: Any) -> JobSpec:
    return JobSpec(ops=list(ops), **fields)


def refusal(*specs: JobSpec, **fields: Any) -> tuple[str, str]:
    """The error that is raised: its name, and its text in one line."""
    with pytest.raises(errors.BadRequestError) as caught:
        drafts(*specs, **fields)
    assert "\n" not in caught.value.text
    return caught.value.name, caught.value.text


# What is stored.


def test_a_job_is_queued_with_everything_filled_in() -> None:
    [draft] = drafts(spec(DELAY, EXEC, priority=-5, reason=[("gnt:user", "why", 7)]), key="k")
    job = draft.job
    assert (job.id, job.status, job.received_timestamp) == (
        100,
        JobStatus.QUEUED,
        (1_700_000_000, 500_000),
    )
    assert (job.start_timestamp, job.end_timestamp, job.livelock, job.process_id) == (None,) * 4
    assert job.extra == {jobs.STATE_SERIAL_KEY: 1, jobs.SUBMISSION_KEY: "k"}
    assert [op.priority for op in job.ops] == [-5, -5]
    assert (job.ops[0].input["duration"], job.ops[1].input["argv"]) == (1.5, ["true"])


def test_ids_follow_each_other() -> None:
    assert [draft.job.id for draft in drafts(*[spec(DELAY)] * 3, first_id=7)] == [7, 8, 9]


def test_the_trail_names_submitter_reason_and_opcode() -> None:
    own = DELAY | {"reason": [["own", "text", 1]]}
    [_, draft] = drafts(spec(DELAY), spec(DELAY, own, reason=[("gnt:user", "why", 7)]))
    user = ["gnt:user", "why", 7]
    moment = 1_700_000_000_500_000_000
    assert draft.job.ops[0].input["reason"] == [
        user,
        ["gnt:opcode:test_delay", "job=101;index=0", moment],
    ]
    assert draft.job.ops[1].input["reason"] == [
        ["own", "text", 1],
        user,
        ["gnt:opcode:test_delay", "job=101;index=1", moment],
    ]


def test_an_opcode_keeps_a_priority_of_its_own() -> None:
    [draft] = drafts(spec(DELAY | {"priority": 3}, DELAY, priority=-5))
    assert [op.priority for op in draft.job.ops] == [3, -5]
    [plain] = drafts(spec(DELAY))
    assert plain.job.ops[0].priority == 0


def test_a_submission_is_not_changed_by_reading_it() -> None:
    given = DELAY | {"depends": [[-1, ["success"]]]}
    before = {**given, "depends": [[-1, ["success"]]]}
    drafts(spec(DELAY), spec(given, priority=1, reason=[("a", "b", 1)]))
    assert given == before


@pytest.mark.parametrize("word", ["depends", "depend"])
def test_relative_dependencies_count_back_within_the_submission(word: str) -> None:
    third = DELAY | {word: [[-1, ["success"]], [-2, []], [7, ["error"]]]}
    [*_, draft] = drafts(spec(DELAY), spec(DELAY), spec(third))
    op = draft.job.ops[0].input
    assert op["depends"] == [[101, ["success"]], [100, []], [7, ["error"]]]
    assert "depend" not in op


def test_the_dependencies_of_a_job_are_those_of_its_first_opcode() -> None:
    later = DELAY | {"depends": [[5, []]]}
    [draft] = drafts(spec(DELAY, later, depends=[(7, ["success"])]))
    assert [op.input["depends"] for op in draft.job.ops] == [[[7, ["success"]]], [[5, []]]]


def test_the_summary_names_every_opcode() -> None:
    [draft] = drafts(spec(DELAY, EXEC))
    row = row_of(draft.job, Phase.PENDING)
    assert not row.needs_user_opcodes
    assert row.summary == "TEST_DELAY(1500000000 ns), EXEC(true)"


def test_the_largest_submission_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "JOBS_PER_SUBMIT_MAX", 3)
    monkeypatch.setattr(settings, "OPCODES_PER_JOB_MAX", 2)
    first_id = job_files.ID_MAX - 2
    largest = [spec(DELAY, DELAY)] * 3
    assert len(drafts(*largest, first_id=first_id, key="ä" * 100)) == 3
    with pytest.raises(errors.DataDirectoryError, match="the queue has 2 ids left"):
        drafts(*largest, first_id=first_id + 1)


@pytest.mark.parametrize("text", ["x" * 100, "\0" * 100], ids=["plain", "escaped"])
def test_standard_input_stays_in_the_opcode_up_to_its_size_as_json(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    size = len(msgspec.json.encode(text))
    for limit, kept in ((size, True), (size - 1, False)):
        monkeypatch.setattr(settings, "INPUT_INLINE_BYTES_MAX", limit)
        [draft] = drafts(spec({**EXEC, "stdin": text}))
        assert ("stdin" in draft.job.ops[0].input, not draft.inputs) == (kept, kept)


# Bad input.


@NEEDS_HIDDEN
@pytest.mark.parametrize(
    ("op", "error", "text"),
    [
        (
            {"OP_ID": "OP_TEST_DELAI", "duration": 1},
            "OpcodeError",
            "unknown opcode 'OP_TEST_DELAI' (did you mean OP_TEST_DELAY?)",
        ),
        ({"duration": 1}, "OpcodeError", "opcode: missing OP_ID"),
        ({"OP_ID": 5}, "OpcodeError", "OP_ID: expected str, got int"),
        (
            {"OP_ID": "OP_TEST_DELAY"},
            "OpcodeError",
            "OP_TEST_DELAY: missing parameter 'duration'",
        ),
        (
            DELAY | {"duration": "long"},
            "OpcodeError",
            "OP_TEST_DELAY: duration: expected float, got str",
        ),
        (
            EXEC | {"argv": "true"},
            "OpcodeError",
            "OP_EXEC: argv: expected list, got str",
        ),
        (
            EXEC | {"priority": 20},
            "OpcodeError",
            "OP_EXEC: priority: expected int <= 19, got 20",
        ),
        (
            EXEC | {"depends": 5},
            "DependencyError",
            "OP_EXEC: depends: expected list, got int",
        ),
        (
            EXEC | {"depends": [5]},
            "DependencyError",
            "OP_EXEC: depends[0]: expected [job id, [statuses]]",
        ),
        (
            EXEC | {"depends": [[5, ["done"]]]},
            "DependencyError",
            f"OP_EXEC: depends[0]: expected words among {', '.join(DEPENDENCY_WORDS)}, got 'done'",
        ),
        (
            EXEC | {"depends": [[5, []]], "depend": [[5, []]]},
            "DependencyError",
            "OP_EXEC: depends: given as 'depend' too; use one of the two",
        ),
        (
            EXEC | {"depends": [[-1, []]]},
            "DependencyError",
            "depends[0]: -1 is out of reach: the submission has 0 jobs before this one",
        ),
        (
            EXEC | {"depends": [[7, []], [100, []]]},
            "DependencyError",
            "depends[1]: a job cannot depend on itself",
        ),
        (
            EXEC | {"depends": [[101, []]]},
            "DependencyError",
            "depends[0]: there is no job 101 (yet)",
        ),
        (EXEC | {"depends": [[0, []]]}, "DependencyError", "depends[0]: there is no job 0 (yet)"),
        (
            {"OP_ID": "OP_CLUSTER_DESTROY"},
            "OperationMissingError",
            "OP_CLUSTER_DESTROY: this opcode is known, but nothing on this system can run it",
        ),
    ],
)
def test_a_bad_opcode_is_refused_and_found_by_its_place(
    op: dict[str, Any], error: str, text: str
) -> None:
    good = spec(DELAY)
    assert refusal(spec(op)) == (error, text)
    assert refusal(spec(DELAY, op)) == (error, f"opcode 1: {text}")
    if "out of reach" in text or "itself" in text or "no job" in text:
        return
    assert refusal(good, spec(op), good) == (error, f"job 1 of the submission: {text}")
    expected = f"job 2 of the submission: opcode 1: {text}"
    assert refusal(good, good, spec(DELAY, op)) == (error, expected)


def test_an_unknown_parameter_is_named_with_the_known_ones() -> None:
    error, text = refusal(spec(EXEC | {"argw": 1}))
    assert error == "OpcodeError"
    assert text.startswith("OP_EXEC: unknown parameter 'argw' (known: argv, env, cwd, ")


class OpMeddling(opcodes.Opcode, kw_only=True):
    op_id = "OP_MEDDLING"
    waits: Any

    def __post_init__(self) -> None:
        self.depends = self.waits

    def run(self, context: opcodes.OperationContext) -> object:
        return context.job_id


@pytest.mark.parametrize(
    ("waits", "text"),
    [
        ([[5, ["sucess"]]], "depends[0]: expected words among success, error, canceled"),
        ([[5, "success"]], "depends[0]: expected [job id, [statuses]]"),
        ([[5]], "depends[0]: expected [job id, [statuses]]"),
        ("5", "depends: expected list, got str"),
    ],
)
def test_dependencies_that_an_opcode_of_a_user_makes_up_are_checked_too(
    waits: object, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalogue._from_users, "OP_MEDDLING", OpMeddling)
    name, sent = refusal(spec({"OP_ID": "OP_MEDDLING", "waits": waits}))
    assert name == "DependencyError"
    assert sent.startswith(f"OP_MEDDLING: {text}")
    [draft] = drafts(spec({"OP_ID": "OP_MEDDLING", "waits": [["5", ["success"]]]}))
    assert draft.job.ops[0].input["depends"] == [[5, ["success"]]]


def test_a_relative_dependency_beyond_the_submission_is_out_of_reach() -> None:
    far = spec(EXEC | {"depends": [[-1, []], [-3, []]]})
    assert refusal(spec(DELAY), spec(DELAY), far) == (
        "DependencyError",
        (
            "job 2 of the submission: depends[1]: -3 is out of reach: "
            "the submission has 2 jobs before this one"
        ),
    )


def test_a_later_job_of_the_same_submission_is_out_of_reach() -> None:
    early = spec(EXEC | {"depends": [[101, []]]})
    assert refusal(early, spec(DELAY)) == (
        "DependencyError",
        "job 0 of the submission: depends[0]: there is no job 101 (yet)",
    )


@pytest.mark.parametrize("word", ["depends", "depend"])
def test_dependencies_are_given_in_one_place(word: str) -> None:
    both = spec(DELAY | {word: [[5, []]]}, depends=[(6, [])])
    assert refusal(both) == (
        "DependencyError",
        "depends: given for the job and for its first opcode; use one of the two",
    )


def test_the_priority_and_the_dependencies_of_a_job_are_checked_as_its_opcodes() -> None:
    assert refusal(spec(DELAY, priority=-21)) == (
        "OpcodeError",
        "OP_TEST_DELAY: priority: expected int >= -20, got -21",
    )
    assert refusal(spec(DELAY, depends=[(5, ["finished"])])) == (
        "DependencyError",
        (
            "OP_TEST_DELAY: depends[0]: expected words among success, error, canceled, failed, "
            "skipped, rejected, killed, timed-out, lost, always, any-failed, got 'finished'"
        ),
    )


def test_empty_submissions_and_jobs_are_refused() -> None:
    assert refusal() == ("BadRequestError", "a submission needs at least one job")
    assert refusal(spec()) == ("BadRequestError", "a job needs at least one opcode")
    assert refusal(spec(DELAY), spec()) == (
        "BadRequestError",
        "job 1 of the submission: a job needs at least one opcode",
    )


def test_submissions_and_jobs_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "JOBS_PER_SUBMIT_MAX", 3)
    monkeypatch.setattr(settings, "OPCODES_PER_JOB_MAX", 2)
    assert refusal(*[spec(DELAY)] * 4) == (
        "BadRequestError",
        "a submission has at most 3 jobs, got 4",
    )
    assert refusal(spec(DELAY), spec(*[DELAY] * 3)) == (
        "BadRequestError",
        "job 1 of the submission: a job has at most 2 opcodes, got 3",
    )


@pytest.mark.parametrize(("key", "length"), [("", 0), ("x" * 201, 201), ("ä" * 101, 202)])
def test_a_key_has_a_length(key: str, length: int) -> None:
    expected = f"key: expected 1 to 200 bytes, got {length}"
    assert refusal(spec(DELAY), key=key) == ("BadRequestError", expected)


@pytest.mark.parametrize("sign", ["\0", "\n", "\x1b", "\x7f", "\x9b", "\u2028"])
def test_a_key_has_no_control_characters(sign: str) -> None:
    expected = f"key: expected no control characters, got {f'a{sign}'!r}"
    assert refusal(spec(DELAY), key=f"a{sign}") == ("BadRequestError", expected)


# Dependencies on jobs that are not in the submission.


def check(made: list[Draft], *known: int) -> str:
    with pytest.raises(errors.DependencyError) as caught:
        submitting.check_targets(made, 100, len(made), known.__contains__)
    return caught.value.text


def test_a_dependency_must_exist() -> None:
    made = drafts(spec(DELAY, depends=[(7, []), (8, [])]))
    submitting.check_targets(made, 100, len(made), (7, 8).__contains__)
    assert check(made, 7) == "depends[1]: there is no job 8"


def test_a_missing_dependency_is_found_by_its_place() -> None:
    later = DELAY | {"depends": [[-1, []], [8, []]]}
    made = drafts(spec(DELAY), spec(DELAY, later))
    assert check(made) == "job 1 of the submission: opcode 1: depends[1]: there is no job 8"


def test_jobs_of_the_same_submission_exist() -> None:
    made = drafts(spec(DELAY), spec(DELAY, depends=[(-1, [])]))
    submitting.check_targets(made, 100, len(made), ().__contains__)


class OpUnlockAll(opcodes.Opcode, kw_only=True):
    """An opcode with a secret that has parts."""

    op_id = "OP_UNLOCK"
    secret_fields = ("pins",)
    pins: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it

    def run(self, context: opcodes.OperationContext) -> None:
        """Do nothing."""


@pytest.fixture(name="unlock")
def declare_unlock(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(catalogue._from_users, "OP_UNLOCK", OpUnlockAll)
    return "OP_UNLOCK"


@pytest.mark.parametrize("pins", [{"a": opcodes.REDACTED}, {"a": "1", "b": [opcodes.REDACTED]}])
def test_a_secret_that_was_copied_from_a_job_is_refused(unlock: str, pins: Any) -> None:
    _, text = refusal(spec({"OP_ID": unlock, "pins": pins}))
    assert text == "OP_UNLOCK: pins: <redacted> stands for a secret; give the secret"


def test_a_retry_of_an_opcode_whose_secret_has_parts_asks_for_it(unlock: str) -> None:
    [draft] = drafts(spec({"OP_ID": unlock, "pins": {"a": "1234"}}))
    assert draft.secrets == {0: {"pins": {"a": "1234"}}}
    assert draft.job.ops[0].input["pins"] == {"a": opcodes.REDACTED}
    with pytest.raises(errors.BadRequestError) as caught:
        submitting.retried(draft.job, None, is_whole=True, now_nanoseconds=1)
    assert caught.value.text == (
        "opcode 0: pins is secret and was not stored; give the opcodes anew"
    )


NULS = "\0" * 1024 * 1024


def _stored(*inputs: dict[str, Any]) -> jobs.Job:
    ops = [jobs.OpcodeEntry(input={"OP_ID": "OP_EXEC", **given}) for given in inputs]
    return jobs.Job(id=7, ops=ops)


def test_the_limit_applies_to_the_stored_form() -> None:
    made = _stored({"argv": [NULS]})
    body = jobs.encode_job(made)
    with pytest.raises(errors.BadRequestError) as caught:
        submitting.check_size(made, body, {})
    assert caught.value.text == (
        f"the job is too large: {len(body)} bytes as JSON, "
        f"at most {settings.JOB_SUBMITTED_BYTES_MAX} are stored"
    )


def test_the_largest_opcode_is_named() -> None:
    made = _stored({"argv": ["x"]}, {"argv": [NULS]}, {"argv": ["x"]})
    with pytest.raises(errors.BadRequestError) as caught:
        submitting.check_size(made, jobs.encode_job(made), {})
    assert "(the largest opcode is opcode 1, with " in caught.value.text


def test_secrets_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made, secrets = _stored({}), {0: {"password": "x"}}
    body = jobs.encode_job(made)
    monkeypatch.setattr(
        settings, "JOB_SUBMITTED_BYTES_MAX", len(body) + len(msgspec.json.encode(secrets))
    )
    submitting.check_size(made, body, secrets)
    with pytest.raises(errors.BadRequestError):
        submitting.check_size(made, body, {0: {"password": "xy"}})
