"""What is read from options and files: refused with its place where it could not be sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from tests.cli.stand_in import use
from tests.core_alone import NEEDS_HIDDEN

from ganger.cli import plans, reading, yaml_documents
from ganger.cli.main import ganger
from ganger.storage import errors, settings

BIG = 2**63
DEEP = "[" * 5_000 + "]" * 5_000


def refused(text: str) -> str:
    with pytest.raises(errors.PlanError) as caught:
        reading.parse(text, "plan")
    assert "\n" not in caught.value.text
    return caught.value.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'[{{"a": [0, {BIG}]}}]', "plan: [0].a[1]: expected an integer of at most 64 bits"),
        (f'{{"a": {-BIG - 1}}}', "plan: a: expected an integer of at most 64 bits"),
        (str(BIG), "plan: expected an integer of at most 64 bits"),
        (r'{"a": {"b": "\ud800"}}', "plan: a.b: expected text that UTF-8 can hold"),
        (r'{"a": {"\ud800": 1}}', "plan: a: expected text that UTF-8 can hold"),
        ('{"a": [NaN]}', "plan: a[0]: expected a finite number, got nan"),
        ('{"a": 1e999}', "plan: a: expected a finite number, got inf"),
        ("a: {1: x}", "plan: a: expected str as key, got int"),
        ("a: !!binary aGk=", "plan: a: expected plain data, got bytes"),
        ("a: !!set {b}", "plan: a: expected plain data, got set"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_place(text: str, expected: str) -> None:
    assert refused(text) == expected


@pytest.mark.parametrize("number", [BIG - 1, -BIG])
def test_integers_of_64_bits_are_read(number: int) -> None:
    assert reading.parse(f'{{"a": {number}}}', "plan") == {"a": number}


@pytest.mark.slow
def test_nesting_is_bounded_in_every_reader() -> None:
    limit = reading.DEPTH_MAX
    assert reading.parse("[" * limit + "]" * limit, "plan")
    expected = f"plan: nested more than {limit} levels deep"
    assert refused("[" * (limit + 1) + "]" * (limit + 1)) == expected
    assert refused("&a [*a]") == expected
    assert refused(DEEP) == "plan: nested deeper than can be read"
    # YAML alone; a parser without a limit would use up the stack.
    for one in ("[x, ", "{a: ", "- ", "? "):
        assert refused(one * 200_000) == "plan: nested deeper than can be read"


@pytest.mark.slow
def test_aliases_do_not_make_a_small_text_a_huge_document() -> None:
    # Each line holds the one before it ten times: a hundred million values.
    lines = [f"- &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 10)}]" for n in range(8)]
    expected = f"plan: holds more than the {settings.FRAME_BYTES_MAX} bytes that are sent"
    assert refused("\n".join(lines)) == expected


def test_a_text_repeated_by_aliases_counts_each_time() -> None:
    text = f"- &a {'x' * 100_000}\n" + "- *a\n" * 100
    assert refused(text).startswith("plan: holds more than")


def test_a_date_without_quotes_is_the_text_that_it_looks_like() -> None:
    text = "{a: 2026-11-21, b: 2026-11-21 18:00:00, c: 17}"
    assert reading.parse(text, "plan") == {"a": "2026-11-21", "b": "2026-11-21 18:00:00", "c": 17}


def test_a_plan_is_read_as_json_where_it_is_json() -> None:
    # An exponent without a dot is a number in JSON and a text in YAML 1.1.
    [job] = plans.read('[{"OP_ID": "OP_TEST_DELAY", "duration": 1e0}]', "plan")
    assert job.ops[0]["duration"] == 1


def test_json_alone_is_not_read_as_yaml() -> None:
    with pytest.raises(errors.UsageError, match=r"^--op: not JSON: "):
        reading.parse_json("{OP_ID: OP_EXEC}", "--op")
    with pytest.raises(errors.UsageError, match=r"^--op: nested deeper than can be read$"):
        reading.parse_json(DEEP, "--op")
    with pytest.raises(errors.UsageError, match=r"^--op: n: expected an integer of at most 64 b"):
        reading.parse_json(f'{{"n": {BIG}}}', "--op")


def test_a_rule_is_read_from_the_option_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rule.yaml"
    file.write_text("action: PAUSE")
    assert reading.read_rule(f"@{file}", "--rule") == {"action": "PAUSE"}
    assert reading.read_rule('{"action": "PAUSE"}', "--rule") == {"action": "PAUSE"}


def test_a_list_with_one_rule_is_a_rule_and_with_several_is_none() -> None:
    assert reading.read_rule('[{"action": "PAUSE"}]', "--rule") == {"action": "PAUSE"}
    with pytest.raises(errors.UsageError, match=r"^--rule: expected one rule, found a list of 2$"):
        reading.read_rule("[{}, {}]", "--rule")


@pytest.mark.parametrize(
    ("written", "moment"),
    [("+2h", 7_200.0), ("now", 0.0), ("1970-01-01T01:00Z", 3_600.0), ("17", 17.0), (18, 18)],
)
def test_times_in_a_rule_are_written_as_behind_the_options(
    monkeypatch: pytest.MonkeyPatch, written: object, moment: float
) -> None:
    monkeypatch.setattr("ganger.cli.reading.time.time", lambda: 0.0)
    text = json.dumps({"valid_from": None, "valid_until": written})
    assert reading.read_rule(text, "--rule") == {"valid_from": None, "valid_until": moment}


def test_a_date_in_yaml_needs_no_quotes() -> None:
    assert reading.read_rule("valid_from: 1970-01-01T01:00Z", "--rule") == {"valid_from": 3_600.0}


def test_a_wrong_time_in_a_rule_is_named() -> None:
    with pytest.raises(
        errors.UsageError, match=r"^--rule: valid_until: 'soon': expected now, \+30"
    ):
        reading.read_rule('{"valid_until": "soon"}', "--rule")


IN_QUOTES = 'in YAML operators stand in quotes, as in ["=", OP_ID, OP_EXEC]'


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[[opcode, [=, OP_ID, OP_EXEC]]]", ", line 1, column 12: "),
        ("- [opcode, [!=, OP_ID, OP_EXEC]]", ", line 1, column 13: "),
        ("- - opcode\n  - - =\n    - OP_ID\n    - x", ", line 2, column 7: "),
        ("[[opcode, [>, OP_ID, OP_EXEC]]]", ", line 1, column 12: "),
        ("[[opcode, [>=, OP_ID, OP_EXEC]]]", ", line 1, column 12: "),
        ("[[opcode, [=[], argv, mkfs]]]", ", line 1, column 13: "),
        ('[[opcode, [&, ["=", a, b]]]]', ", line 1, column 13: "),
        ('[[opcode, [|, ["=", a, b]]]]', ", line 1, column 12: "),
        ('[[opcode, [!, ["=", a, b]]]]', ", line 1, column 12: "),
        ("[[opcode, [?, a]]]", ": predicates[0][1][0]: expected str as key, got null; "),
    ],
)
def test_an_operator_without_quotes_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        reading.read_option(text, "--predicates", "predicates")
    assert caught.value.text == f"--predicates{place}{IN_QUOTES}"


@pytest.mark.parametrize("text", ['[["=", a, b]', "{a: b", "'=", "a: b: c", "[a, %]"])
def test_other_mistakes_in_yaml_are_reported_as_they_are(text: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        reading.read_option(text, "--predicates")
    assert caught.value.text.startswith("--predicates, line 1, column ")
    assert "quotes" not in caught.value.text


@pytest.mark.slow
@pytest.mark.parametrize("words", [("filter", "test"), ("queue", "simulate")])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEEP, "--rule: nested deeper than can be read"),
        ("[]", '--rule: expected an object such as {"action": "PAUSE"}'),
        ("@/nonexistent", "--rule: '/nonexistent': No such file or directory"),
        (
            f'{{"predicates": [["jobid", ["=", "id", {BIG}]]]}}',
            "--rule: predicates[0][1][2]: expected an integer of at most 64 bits",
        ),
        (
            r'{"predicates": [["opcode", ["=", "OP_ID", "\ud800"]]]}',
            "--rule: predicates[0][1][2]: expected text that UTF-8 can hold",
        ),
    ],
)
def test_a_proposed_rule_is_refused_before_any_daemon_is_asked(
    words: tuple[str, str], text: str, expected: str, tmp_path: Path
) -> None:
    # Without a daemon: had it been asked, that would be the error.
    asked = ["--data", str(tmp_path), *words, "--rule", text]
    done = CliRunner().invoke(ganger, asked, standalone_mode=False)
    assert isinstance(done.exception, errors.UsageError)
    assert done.exception.text == expected


def test_a_submission_that_is_not_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "plan"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(errors.PlanError, match="not UTF-8 text"):
        reading.read_submission(str(file))
    with pytest.raises(errors.UsageError, match="Is a directory"):
        reading.read_submission(str(tmp_path))
    read = CliRunner().invoke(ganger, ["job", "submit", "-"], input=b"\xff", standalone_mode=False)
    assert isinstance(read.exception, errors.PlanError)
    assert read.exception.text.startswith("standard input: not UTF-8 text")


# Options that hold a number or a text.

HALF = "\udcff"
"""As a byte reaches us that is no UTF-8."""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("filter", "add", "--reason", HALF), "'--reason': not UTF-8 text"),
        (("filter", "add", "--reason-matches", HALF), "'--reason-matches': not UTF-8 text"),
        (("filter", "add", "--opcode", HALF), "'--opcode': not UTF-8 text"),
        (
            ("filter", "add", "--priority", str(BIG)),
            f"'--priority': expected at most {2**63 - 1}, got {BIG}",
        ),
        (("filter", "add", "--action", f"RATE_LIMIT {BIG}"), "--action: expected an integer of"),
        (("filter", "add", "--jobs-after", str(BIG)), "--jobs-after: expected the id or the n"),
        (("queue", "simulate", "--priority", "4=20"), "--priority: expected -20 to 19, high"),
        (("queue", "simulate", "--priority", "4"), "--priority: expected ID=N or NAME=N,"),
        (("queue", "simulate", "--priority", "-3=4"), "--priority: expected the id or the na"),
        (("queue", "simulate", "--priority", f"{BIG}=4"), "--priority: expected the id or the na"),
        (("queue", "simulate", "--ended", "4=running"), "--ended: expected ID or ID=STATUS with"),
        (("queue", "simulate", "--ended", str(BIG)), "--ended: expected the id or the name of"),
        (("queue", "simulate", "--slots", str(BIG)), "'--slots': "),
        (("queue", "limit", str(BIG)), "expected at most"),
        (("job", "submit", "--op", "{}", "--reason", HALF), "'--reason': not UTF-8 text"),
        (
            ("job", "submit", "--op", "{}", "--depend", str(BIG)),
            "'--after' / '--depend': expected the id",
        ),
        (("job", "submit", "--op", "{}", "--key", ""), "--key: is empty"),
        (("job", "autoarchive", "9" * 400), "'AGE': expected a time such as"),
        (("job", "wait", "1", "--timeout", "nan"), "'--timeout': expected a time such as"),
        (("job", "watch", "1", "--timeout", "inf"), "'--timeout': expected a time such as"),
        (("job", "wait", "1", "--timeout", "-1"), "'--timeout': expected a time such as"),
        (
            ("exec", "--timeout", "5 m", "--", "true"),
            "'--timeout': expected a time such as 90, 30m",
        ),
        (("exec", "--name", "17", "--", "true"), "--name: '17' looks like an id; use a letter"),
        (("exec", "--name", "@last", "--", "true"), "--name: '@last' begins with @, which names"),
        (("exec", "--name", "", "--", "true"), "--name: expected a name of 1 to 200 bytes, got 0"),
        (("exec", "--cwd", "", "--", "true"), "--cwd: is empty"),
        (("exec", "--key", "", "--", "true"), "--key: is empty"),
        (("exec", "--env-from-here", "A,", "--", "true"), "--env-from-here: "),
        (("exec", "--env-from-here", "NO_SUCH_V", "--", "true"), "no variable 'NO_SUCH_V' is set"),
        (("exec", "--on-failure", "-3", "--", "true"), "expected the id or the name of a job"),
        (("job", "list", "--last", "0"), "'--last': expected at least 1, got 0"),
        (("job", "list", "--since", "now", "--until", "-2h"), "--since: is not before --until"),
        (("job", "list", "--status", "failed"), "error; 'failed' goes with --outcome"),
        (("job", "list", "--outcome", "fialed"), "got 'fialed' (did you mean failed?)"),
        (("job", "list", "--fields", ""), "--fields: is empty"),
        (("job", "list", "--user", ""), "--user: is empty"),
        (("job", "info", ""), "'IDS...': expected the id or the name of a job, got ''"),
        (("exec", "--timeout", "0", "--", "true"), "'--timeout': expected a time such as"),
        (("exec", "--lock", "NODE/w1", "--", "true"), "no level 'NODE' (did you mean node?)"),
        (("exec", "--lock", "node/w*", "--", "true"), "--lock: 'w*' is no pattern: node/* is"),
        (("job", "list", "--since", "yesterday"), "'--since': 'yesterday': expected now, -30m"),
        (("job", "list", "1" * 19), "'[IDS]...': expected the id or the name of a job, got '1111"),
        (("exec", "--", "echo", HALF), "'COMMAND...': not UTF-8 text"),
        (("exec", "--env", f"A={HALF}", "--", "true"), "'--env': not UTF-8 text"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_daemon_is_asked(
    words: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    asked = ["--data", str(tmp_path), *words]
    done = CliRunner().invoke(ganger, asked, standalone_mode=False)
    match done.exception:
        case errors.UsageError() as error:
            assert expected in error.text
        case click.UsageError() as error:
            assert expected in error.format_message()
        case error:
            pytest.fail(f"not refused as a wrong command line: {error!r}")


class Stored:
    """Stands for the client: keeps what is submitted, and the input that is sent before."""

    def __init__(self) -> None:
        self.opcode: dict[str, Any] = {}
        self.input = b""

    def submit(self, opcode: dict[str, Any], **_: object) -> int:
        self.opcode = opcode
        return 7

    def store_input(self, parts: Iterable[bytes]) -> str:
        self.input = b"".join(parts)
        return "upload-1"


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [(b"text\n", "stdin", "text\n"), (b"\xff\x00", "stdin_base64", "/wA="), (b"", "stdin", "")],
)
def test_a_command_gets_any_bytes_as_its_standard_input(
    given: bytes, field: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Stored()
    use(monkeypatch, client)
    done = CliRunner().invoke(ganger, ["exec", "-d", "--stdin", "-", "--", "cat"], input=given)
    assert (done.exit_code, done.output) == (0, "7\n")
    assert client.opcode[field] == value


@pytest.mark.parametrize("beyond", [1, 3 * settings.STDIN_PART_BYTES])
def test_a_large_standard_input_is_sent_before_the_job(
    beyond: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Stored()
    use(monkeypatch, client)
    given = b"\xff" * (settings.STDIN_PART_BYTES + beyond)
    CliRunner().invoke(ganger, ["exec", "-d", "--stdin", "-", "--", "cat"], input=given)
    assert client.opcode == {"OP_ID": "OP_EXEC", "argv": ["cat"], "stdin_file": "upload-1"}
    assert client.input == given


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("queue", "simulate", "--trace", "-"), marks=NEEDS_HIDDEN),
        ("job", "submit", "-"),
        ("exec", "--stdin", "-", "--", "cat"),
    ],
)
def test_standard_input_that_is_closed_is_named(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So Python starts if the descriptor is closed, as with `<&-` in a shell.
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(errors.UsageError) as caught:
        ganger.main(["--data", str(tmp_path), *words], standalone_mode=False)
    assert caught.value.text == "standard input: it is closed"


@pytest.mark.parametrize("words", [("job", "submit"), ("filter", "add", "--predicates")])
def test_a_file_that_is_too_long_or_without_end_is_refused_before_it_is_read(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "log"
    with file.open("wb") as stream:
        stream.truncate(settings.DOCUMENT_BYTES_MAX + 1)
    mark = "@" if "filter" in words else ""
    for path in (file, Path("/dev/zero")):
        done = CliRunner().invoke(ganger, [*words, f"{mark}{path}"], standalone_mode=False)
        assert isinstance(done.exception, errors.PlanError | errors.UsageError)
        assert done.exception.text.endswith(": longer than the 64 MiB that are read")
        assert str(path) in done.exception.text


def by_a_program(jobs: int, extra: str = "") -> str:
    """A plan that is long enough to be read by libyaml."""
    one = '  - name: j{}\n    ops: [{{OP_ID: OP_EXEC, argv: [echo, 2026-11-21, 1e3, "x"]}}]\n'
    return f"jobs:\n{''.join(map(one.format, range(jobs)))}{extra}"


@pytest.mark.slow
def test_both_libraries_read_the_same() -> None:
    text = by_a_program(2_000)
    fast = reading.parse(text, "plan")
    assert isinstance(yaml_documents._loader(is_fast=True)(""), yaml.CSafeLoader)
    assert yaml_documents._parsed(text, None, is_fast=False) == fast
    assert fast["jobs"][7]["ops"][0]["argv"] == ["echo", "2026-11-21", "1e3", "x"]


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ("  - {a: 1, b: 2, a: 3}\n", "line 4002, column 18: the key 'a' stands in a mapping twice"),
        ("  - {a: !!python/name:os.x 1}\n", "line 4002, column 9: could not determine"),
        ("  - [\n", "line 4003, column 1: "),
    ],
)
def test_a_mistake_in_a_long_plan_is_refused_with_its_place(extra: str, problem: str) -> None:
    assert refused(by_a_program(2_000, extra)).startswith(f"plan, {problem}")


def test_what_is_merged_into_a_mapping_of_a_long_plan_may_be_overridden() -> None:
    more = "  - &one {ops: [1], name: a}\n  - &two {<<: *one, name: b}\n  - {<<: *two, ops: [2]}\n"
    found = reading.parse(by_a_program(2_000, more), "plan")["jobs"]
    assert found[2000:] == [
        {"ops": [1], "name": "a"},
        {"ops": [1], "name": "b"},
        {"ops": [2], "name": "b"},
    ]


def test_a_short_plan_is_read_by_the_fast_library_too(monkeypatch: pytest.MonkeyPatch) -> None:
    used = list[bool]()
    parsed = yaml_documents._parsed

    def noted(*args: Any, is_fast: bool) -> object:
        used.append(is_fast)
        return parsed(*args, is_fast=is_fast)

    monkeypatch.setattr(yaml_documents, "_parsed", noted)
    plans.read(by_a_program(2), "plan")
    assert used == [True]
    # The other one says better what is wrong.
    with pytest.raises(errors.PlanError, match="expected ',' or ']', but got '<stream end>'"):
        plans.read("jobs: [1, 2", "plan")
    assert used == [True, True, False]


def test_what_has_been_read_so_far_is_told() -> None:
    told = list[int]()
    plans.read(by_a_program(3), "plan", told.append)
    assert told == [1, 2, 3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("head", ["jobs:\n", ""])
def test_a_plan_of_too_many_jobs_is_refused_where_they_become_too_many(head: str) -> None:
    """It is not read to its end, which can take a minute: nobody sees that it does not close."""
    job = "  - name: a\n    ops: [{OP_ID: OP_EXEC, argv: [true]}]\n"
    text = head + job * (settings.JOBS_PER_SUBMIT_MAX + 1) + "  - [\n"
    with pytest.raises(errors.PlanError) as caught:
        plans.read(text, "plan")
    assert caught.value.text == f"plan: {TOO_MANY}"


TOO_MANY = "a submission has at most 20000 jobs, and this has more"


def test_too_many_jobs_in_json_are_refused_before_they_are_looked_at() -> None:
    text = json.dumps({"jobs": [None] * (settings.JOBS_PER_SUBMIT_MAX + 1)})
    with pytest.raises(errors.PlanError) as caught:
        plans.read(text, "plan")
    assert caught.value.text == f"plan: {TOO_MANY}"


def test_lists_within_a_job_may_be_longer_than_a_plan() -> None:
    words = "- a\n" * (settings.JOBS_PER_SUBMIT_MAX + 1)
    [job] = plans.read(f"OP_ID: OP_EXEC\nargv:\n{words}", "plan")
    assert len(job.ops[0]["argv"]) == settings.JOBS_PER_SUBMIT_MAX + 1
