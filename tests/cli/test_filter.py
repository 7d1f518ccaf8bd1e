"""What is typed behind ``ganger filter``, and the rule that the daemon is asked to store."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.cli import stand_in

from ganger.cli.main import ganger
from ganger.storage import errors
from ganger.storage.filters import rules
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.client import filter_requests
from ganger.transport.messages import FilterRow, ReplaceFilter, RuleTest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

UUID = "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"
NOW = 1_800_000_000.0
ROWS = [
    FilterRow(
        uuid=UUID,
        watermark=17,
        priority=2,
        predicates=[["jobid", [">", "id", "watermark"]]],
        action=["RATE_LIMIT", 3],
        reason_trail=[["gnt:user", "evacuation\nof  rack 7", 5], ["luxid", "", 6]],
        valid_until=NOW,
    ),
    FilterRow(uuid=OTHER, watermark=18, priority=3, predicates=[], action="PAUSE", reason_trail=[]),
]


class FilterDaemon:
    """Stands for the client of a daemon; remembers what it was asked for."""

    def __init__(self) -> None:
        self.stored: list[tuple[str | None, dict[str, Any]]] = []
        self.deleted: list[str] = []
        self.asked: list[Sequence[str] | None] = []
        self.rows = ROWS
        self.is_away = False

    def add_filter(self, *, uuid: str | None, key: str, **rule: Any) -> str:
        assert key
        self.stored.append((uuid, rule))
        return uuid or UUID

    def replace_filter(self, uuid: str, **rule: Any) -> str:
        return self.add_filter(uuid=uuid, **rule)

    def delete_filter(self, uuid: str, *, key: str) -> None:
        assert key
        if uuid not in {row.uuid for row in self.rows}:
            raise errors.UnknownFilterError(f"Filter rule with UUID {uuid} does not exist")
        self.deleted.append(uuid)

    def test_filters(
        self, proposed: dict[str, Any] | None, *, without: str | None
    ) -> list[RuleTest]:
        del without
        asked = filter_requests.filter_test(proposed, None).rule or ReplaceFilter(uuid=UUID)
        assert asked.uuid is not None
        return [
            RuleTest(
                id=4, status=JobStatus.QUEUED, now=(OTHER, "ACCEPT"), then=(asked.uuid, "PAUSE")
            ),
            RuleTest(id=5, status=JobStatus.RUNNING, now=None, then=None),
        ]

    def filters(self, uuids: Sequence[str] | None = None) -> list[FilterRow]:
        self.asked.append(uuids)
        known = {row.uuid for row in self.rows}
        if uuids is not None and not known.issuperset(uuids):
            raise errors.UnknownFilterError
        return [row for row in self.rows if uuids is None or row.uuid in uuids]


@pytest.fixture(name="daemon")
def daemon_that_remembers(monkeypatch: pytest.MonkeyPatch) -> FilterDaemon:
    daemon = FilterDaemon()

    stand_in.use(monkeypatch, daemon)
    monkeypatch.setattr("ganger.cli.reading.time.time", lambda: NOW)
    return daemon


def typed(*words: str) -> Result:
    return CliRunner().invoke(ganger, ["filter", *words], catch_exceptions=True)


def rule(daemon: FilterDaemon, *words: str) -> dict[str, Any]:
    """The one rule that `filter add` with these words stores."""
    done = typed("add", *words)
    assert done.exception is None, done.output
    [(_, stored)] = daemon.stored
    daemon.stored.clear()
    return stored


def refusal(daemon: FilterDaemon, *words: str) -> str:
    """Why the command line itself refuses these words; nothing was asked of the daemon."""
    done = CliRunner().invoke(ganger, ["filter", *words], standalone_mode=False)
    assert daemon.stored == []
    match done.exception:
        case errors.UsageError() as error:
            return error.text
        case click.UsageError() as error:
            return error.format_message()
    pytest.fail(f"not refused as a wrong command line: {done.exception!r}")


# Predicates.


@pytest.mark.parametrize(
    ("op_id", "is_doubted"),
    [("OP_EXCE", True), ("execc", True), ("OP_EXEC", False), ("OP_GREET_THE_WORLD", False)],
)
def test_what_is_nearly_an_opcode_is_doubted_and_stored(
    daemon: FilterDaemon, op_id: str, *, is_doubted: bool
) -> None:
    """Opcodes of the daemon's packages need not be known here."""
    done = typed("add", "--opcode", op_id)
    hint = f"ganger: --opcode: there is no opcode '{op_id}' here (did you mean OP_EXEC?)"
    assert (hint in done.output) is is_doubted
    [(_, stored)] = daemon.stored
    assert stored["predicates"] == [["opcode", ["=", "OP_ID", op_id]]]


@pytest.mark.parametrize("text", ["exec", "EXEC", "op_exec", "OP_EXEC"])
def test_an_opcode_may_be_written_without_its_beginning(daemon: FilterDaemon, text: str) -> None:
    found = rule(daemon, "--opcode", text)["predicates"]
    assert found == [["opcode", ["=", "OP_ID", "OP_EXEC"]]]


def test_a_rule_without_options_does_nothing_to_every_job(daemon: FilterDaemon) -> None:
    assert rule(daemon) == {
        "priority": 0,
        "predicates": [],
        "action": "CONTINUE",
        "reason": "",
        "valid_from": None,
        "valid_until": None,
        "name": "",
        "first": False,
    }


PREDICATES = [["opcode", ["=", "OP_ID", "OP_EXEC"]]]


@pytest.mark.parametrize(
    "text",
    [
        '[["opcode", ["=", "OP_ID", "OP_EXEC"]]]',
        '[[opcode, ["=", OP_ID, OP_EXEC]]]',
        '- [opcode, ["=", OP_ID, OP_EXEC]]',
    ],
)
def test_predicates_are_json_or_yaml(daemon: FilterDaemon, text: str) -> None:
    assert rule(daemon, "--predicates", text)["predicates"] == PREDICATES


def test_what_json_and_yaml_read_differently_is_read_as_json(daemon: FilterDaemon) -> None:
    # An exponent without a dot is a number in JSON and a text in YAML 1.1.
    text = '[["jobid", [">", "id", 1e3]]]'
    assert rule(daemon, "--predicates", text)["predicates"] == [["jobid", [">", "id", 1000]]]


def test_predicates_may_stand_in_a_file(daemon: FilterDaemon, tmp_path: Path) -> None:
    file = tmp_path / "predicates.yaml"
    file.write_text('- - opcode\n  - ["=", OP_ID, OP_EXEC]\n')
    assert rule(daemon, "--predicates", f"@{file}")["predicates"] == PREDICATES


@pytest.mark.parametrize(
    ("words", "predicates"),
    [
        (["--opcode", "OP_EXEC"], PREDICATES),
        (
            ["--opcode", "OP_EXEC", "--opcode", "OP_TEST_DELAY"],
            [["opcode", ["|", ["=", "OP_ID", "OP_EXEC"], ["=", "OP_ID", "OP_TEST_DELAY"]]]],
        ),
        (["--reason-matches", "rack [78]"], [["reason", ["=~", "reason", "rack [78]"]]]),
        (["--jobs-after", "now"], [["jobid", [">", "id", "watermark"]]]),
        (["--jobs-after", "17"], [["jobid", [">", "id", 17]]]),
    ],
)
def test_common_predicates_need_no_json(
    daemon: FilterDaemon, words: list[str], predicates: list[Any]
) -> None:
    assert rule(daemon, *words)["predicates"] == predicates


def test_all_predicates_that_are_given_must_match(daemon: FilterDaemon) -> None:
    words = ["--jobs-after", "5", "--reason-matches", "x", "--opcode", "OP_EXEC"]
    text = '[["jobid", ["<", "id", 9]]]'
    kinds = [name for name, _ in rule(daemon, *words, "--predicates", text)["predicates"]]
    assert kinds == ["jobid", "opcode", "reason", "jobid"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[["opcode", ["=", "OP_ID", "OP_EXEC"]]', "--predicates, line 1, column 39: expected"),
        ("[" * 5_000, "--predicates: nested deeper than can be read"),
        ("9" * 5_000, "--predicates: neither JSON nor YAML: Exceeds the limit"),
        (
            '[["opcode", ["=", OP_ID, !!binary aGk=]]]',
            "--predicates: predicates[0][1][2]: expected plain data, got bytes",
        ),
        (
            f'[["jobid", ["=", "id", {2**63}]]]',
            "--predicates: predicates[0][1][2]: expected an integer of at most 64 bits",
        ),
        (
            r'[["opcode", ["=", "OP_ID", "\ud800"]]]',
            "--predicates: predicates[0][1][2]: expected text that UTF-8 can hold",
        ),
        ("&a [*a]", "--predicates: nested more than 100 levels deep"),
        ('{"opcode": 1}', "--predicates: expected a list of predicates"),
        ("", "--predicates: expected a list of predicates"),
    ],
)
def test_predicates_that_are_none_are_refused_with_the_place(
    daemon: FilterDaemon, text: str, expected: str
) -> None:
    assert refusal(daemon, "add", "--predicates", text).startswith(expected)


def test_a_file_that_cannot_be_read_is_named(daemon: FilterDaemon, tmp_path: Path) -> None:
    away, strange, torn = tmp_path / "away", tmp_path / "strange", tmp_path / "torn"
    strange.write_bytes(b"\xff\xfe")
    torn.write_text("[")
    for path, expected in (
        (away, f"--predicates: '{away}': No such file or directory"),
        (tmp_path, f"--predicates: '{tmp_path}': Is a directory"),
        (strange, f"--predicates: '{strange}': not UTF-8 text"),
        (torn, f"--predicates: {torn}, line 1, column 2: expected"),
    ):
        assert refusal(daemon, "add", "--predicates", f"@{path}").startswith(expected)


@pytest.mark.parametrize("text", ["-3", "", "9" * 5_000])
def test_a_watermark_is_now_or_a_job(daemon: FilterDaemon, text: str) -> None:
    expected = f"--jobs-after: expected the id or the name of a job, got {text[:60]!r}"
    assert refusal(daemon, "add", f"--jobs-after={text}") == expected


@pytest.mark.parametrize("option", ["--reason-matches", "--opcode"])
def test_a_variable_that_was_never_set_is_no_pattern(daemon: FilterDaemon, option: str) -> None:
    # Or `ganger filter add --action PAUSE --reason-matches "$reason"` would hold every job.
    assert refusal(daemon, "add", "--action", "PAUSE", option, "") == f"{option}: is empty"


# Actions.


def test_an_action_that_begins_like_json_and_is_none_is_refused(daemon: FilterDaemon) -> None:
    complaint = refusal(daemon, "add", "--action", '["RATE_LIMIT", 2')
    assert complaint.startswith("--action: not JSON: ")


@pytest.mark.parametrize(
    "words",
    [
        ["--action", "RATE_LIMIT 5"],
        ["--action", "RATE_LIMIT   5 "],
        ["--action", "RATE_LIMIT", "5"],
        ["--action=RATE_LIMIT", "5"],
        ["--action", "RATE_LIMIT=5"],
        ["--action", "rate-limit:5"],
        ["--action", '["RATE_LIMIT", 5]'],
    ],
)
def test_a_limit_is_written_as_one_word_or_two(daemon: FilterDaemon, words: list[str]) -> None:
    assert rule(daemon, *words)["action"] == ["RATE_LIMIT", 5]


def test_the_number_of_a_limit_is_no_uuid(daemon: FilterDaemon) -> None:
    for words in (["--action", "RATE_LIMIT", "5", UUID], [UUID, "--action", "RATE_LIMIT", "5"]):
        assert typed("replace", *words).output == f"{UUID}\n"
        [(uuid, stored)] = daemon.stored
        assert (uuid, stored["action"]) == (UUID, ["RATE_LIMIT", 5])
        daemon.stored.clear()


def test_only_the_number_of_an_action_is_taken(daemon: FilterDaemon) -> None:
    complaint = refusal(daemon, "add", "--action", "PAUSE", "5")
    assert complaint == "Got unexpected extra argument (5)"


@pytest.mark.parametrize("action", ["ACCEPT", "PAUSE", "REJECT", "CONTINUE"])
def test_actions_are_passed_on(daemon: FilterDaemon, action: str) -> None:
    assert rule(daemon, "--action", action)["action"] == action


def test_a_limit_without_its_number_is_refused_with_the_right_form(daemon: FilterDaemon) -> None:
    expected = "--action: RATE_LIMIT takes a number, as in --action 'RATE_LIMIT 5'"
    assert refusal(daemon, "add", "--action", "RATE_LIMIT") == expected


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("PAUS", "PAUS"),
        ("RATE_LIMIT 0", ["RATE_LIMIT", 0]),
        ("RATE_LIMIT -1", ["RATE_LIMIT", -1]),
        ("RATE_LIMIT many", ["RATE_LIMIT", "many"]),
        ("RATE_LIMIT " + "9" * 5_000, ["RATE_LIMIT", "9" * 5_000]),
    ],
)
def test_what_is_wrong_with_an_action_is_left_to_the_daemon(
    daemon: FilterDaemon, text: str, asked: object
) -> None:
    assert rule(daemon, "--action", text)["action"] == asked


@pytest.mark.parametrize("action", ["pause", "Reject", "rate_limit"])
def test_an_action_in_small_letters_is_refused_with_the_right_word(
    daemon: FilterDaemon, action: str
) -> None:
    expected = f"--action: write {action.upper()}, in capitals, not {action!r}"
    assert refusal(daemon, "add", "--action", action) == expected


# Times.


@pytest.fixture(name="east")
def local_time_five_hours_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XXX-5")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("east")
@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW),
        ("+45s", NOW + 45),
        ("+30m", NOW + 1_800),
        ("+2h", NOW + 7_200),
        ("+1.5h", NOW + 5_400),
        ("+1d", NOW + 86_400),
        ("1800000600", 1_800_000_600.0),
        ("1800000600.5", 1_800_000_600.5),
        ("2027-01-15T08:00Z", datetime.fromisoformat("2027-01-15T08:00+00:00").timestamp()),
        ("2027-01-15T08:00+01:00", datetime.fromisoformat("2027-01-15T07:00+00:00").timestamp()),
        ("2027-01-15T08:00", datetime.fromisoformat("2027-01-15T03:00+00:00").timestamp()),
        ("2027-01-15", datetime.fromisoformat("2027-01-14T19:00+00:00").timestamp()),
    ],
)
def test_a_time_can_be_given_in_several_forms(
    daemon: FilterDaemon, text: str, moment: float
) -> None:
    stored = rule(daemon, "--valid-from", text, "--valid-until", text)
    assert (stored["valid_from"], stored["valid_until"]) == (moment, moment)


@pytest.mark.parametrize(
    "text",
    [
        *("soon", "", "-5", "nan", "inf", "+5", "+5y", "1_800", "2027-13-01"),
        *("0001-01-01T00:00", "1800000600000", f"+{'9' * 400}d"),
    ],
)
def test_a_time_that_no_calendar_has_is_refused(daemon: FilterDaemon, text: str) -> None:
    complaint = refusal(daemon, "add", f"--valid-until={text}")
    assert complaint.startswith(f"Invalid value for '--valid-until': {text[:60]!r}: expected now, ")


# Names of rules.


def test_add_may_be_given_the_uuid(daemon: FilterDaemon) -> None:
    assert typed("add", "--uuid", OTHER).output == f"{OTHER}\n"
    assert typed("add").output == f"{UUID}\n"
    assert [uuid for uuid, _ in daemon.stored] == [OTHER, None]


@pytest.mark.parametrize(
    ("words", "subject"), [(["replace", ""], "UUID"), (["add", "--uuid", ""], "--uuid")]
)
def test_a_variable_that_was_never_set_names_no_rule(
    daemon: FilterDaemon, words: list[str], subject: str
) -> None:
    # Or the script `ganger filter replace "$uuid" --action PAUSE` would hold the whole queue.
    assert refusal(daemon, *words, "--action", "PAUSE") == f"{subject}: is empty"


@pytest.mark.usefixtures("daemon")
def test_rules_that_exist_are_shown_beside_uuids_that_no_rule_has() -> None:
    def shown(*words: str) -> Result:
        return CliRunner().invoke(ganger, ["filter", *words], standalone_mode=False)

    unknown = f"{OTHER[:-1]}9"
    for words in (("list",), ("info",), ("info", "-o", "json")):
        done = shown(*words, UUID, unknown, OTHER)
        assert done.return_value == 1
        assert re.findall(f"{UUID}|{OTHER}", done.stdout) == [UUID, OTHER]
        assert done.stderr.startswith("ganger: There is no filter rule")
        alone = shown(*words, unknown)
        assert (alone.return_value, alone.stdout) == (1, "")


def test_delete_prints_each_rule_and_names_one_that_is_not_there(daemon: FilterDaemon) -> None:
    done = CliRunner().invoke(ganger, ["filter", "delete", UUID, "x", OTHER], standalone_mode=False)
    assert done.return_value == 1
    assert done.stdout == f"Filter rule {UUID} is deleted\nFilter rule {OTHER} is deleted\n"
    assert done.stderr == "ganger: Filter rule with UUID x does not exist\n"
    assert daemon.deleted == [UUID, OTHER]


def test_the_beginning_of_a_uuid_stands_for_it(daemon: FilterDaemon) -> None:
    daemon.rows = [*ROWS, msgspec.structs.replace(ROWS[0], uuid=f"1234abcd{UUID[8:]}")]
    whole = daemon.rows[2].uuid
    typed("delete", "1234abcd")
    assert daemon.deleted == [whole]
    typed("replace", "1234abcd-00", "--action", "PAUSE")
    assert daemon.stored[0][0] == whole
    assert re.findall(r"^[0-9a-f-]{36}", typed("list", "1234abcd").output, re.MULTILINE) == [whole]


# What is shown.


def test_a_listing_has_one_line_for_each_rule(daemon: FilterDaemon) -> None:
    lines = typed("list", "--separator", "|").output.splitlines()
    reason, until = "evacuation of rack 7", "2027-01-15T08:00:00Z"
    assert lines == [
        "rule|priority|state|action|until|matches|reason",
        f"{UUID}|2|in force|RATE_LIMIT 3|{until}|id > 17|{reason}",
        f"{OTHER}|3|in force|PAUSE|-|every job|-",
    ]
    assert daemon.asked == [None]


@pytest.mark.parametrize("command", ["list", "info"])
def test_only_the_rules_that_are_named_are_shown(daemon: FilterDaemon, command: str) -> None:
    shown = typed(command, OTHER).output
    assert OTHER in shown
    assert UUID not in shown
    assert daemon.asked == [(OTHER,)]


@pytest.mark.usefixtures("daemon")
def test_json_has_the_rules_as_they_are_stored() -> None:
    for command in ("list", "info"):
        first, second = json.loads(typed(command, "-o", "json").output)
        assert first["action"] == ["RATE_LIMIT", 3]
        assert first["reason_trail"] == [
            ["gnt:user", "evacuation\nof  rack 7", 5],
            ["luxid", "", 6],
        ]
        assert first["valid_until"] == NOW
        assert set(first) == set(second) == set(FilterRow.__struct_fields__)


@pytest.mark.usefixtures("daemon")
def test_json_has_only_the_fields_that_are_asked_for() -> None:
    shown = json.loads(typed("list", "-o", "json", "--fields", "uuid,reason,until,matches").output)
    assert shown == [
        {
            "uuid": UUID,
            "reason": "evacuation of rack 7",
            "valid_until": NOW,
            "matches": "id > 17",
        },
        {"uuid": OTHER, "reason": "", "valid_until": None, "matches": "every job"},
    ]


def test_a_field_that_does_not_exist_is_named(daemon: FilterDaemon) -> None:
    complaint = refusal(daemon, "list", "--fields", "uuid,colour")
    assert complaint.startswith("--fields: there is no field 'colour'; known are rule, uuid,")
    assert daemon.asked == []


@pytest.mark.usefixtures("daemon")
def test_info_prints_a_whole_rule() -> None:
    assert typed("info", UUID).output.splitlines() == [
        f"UUID: {UUID}",
        "  Watermark: 17",
        "  Priority: 2",
        "  Matches: id > 17",
        '  Predicates: [["jobid",[">","id","watermark"]]]',
        "  Action: RATE_LIMIT 3",
        '  Reason trail: [["gnt:user","evacuation\\nof  rack 7",5],["luxid","",6]]',
        "  State: in force (until 2027-01-15T08:00:00Z)",
    ]


def test_a_time_that_no_calendar_has_does_not_hide_the_rules(daemon: FilterDaemon) -> None:
    # A program may store milliseconds.
    daemon.rows = [
        FilterRow(
            uuid=UUID,
            watermark=1,
            priority=0,
            predicates=[],
            action="PAUSE",
            reason_trail=[],
            valid_from=1.0,
            valid_until=NOW * 1_000,
        )
    ]
    assert "until 1800000000000)" in typed("info").output
    assert typed("list", "--no-headers", "--fields", "until").output == "1800000000000\n"


# What would happen.


@pytest.mark.usefixtures("daemon")
def test_a_rule_that_is_only_proposed_is_called_so() -> None:
    lines = typed("test", "--rule", '{"action": "PAUSE"}').output.splitlines()
    assert lines == [
        f"4  queued  ACCEPT by {OTHER}  ->  PAUSE by the proposed rule",
        "5  running  no rule",
        "2 jobs, 1 would be under another rule",
    ]
    [first, _] = json.loads(typed("test", "--rule", "action: PAUSE", "-o", "json").output)
    assert first["then"] == [rules.PROPOSED_UUID, "PAUSE"]


@pytest.mark.usefixtures("daemon")
def test_a_proposed_rule_keeps_the_uuid_that_it_was_given() -> None:
    output = typed("test", "--rule", f"{{action: PAUSE, uuid: {UUID}}}").output
    assert f"->  PAUSE by {UUID}\n" in output


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("command", ["list", "info"])
def test_a_rule_that_was_printed_as_json_can_be_proposed(command: str, tmp_path: Path) -> None:
    file = tmp_path / "rule.json"
    printed = typed(command, UUID, "-o", "json").output
    for text in (printed, json.dumps(json.loads(printed)[0])):
        file.write_text(text)
        assert f"->  PAUSE by {UUID}\n" in typed("test", "--rule", f"@{file}").output


@pytest.mark.usefixtures("daemon")
def test_the_help_of_a_rule_has_all_its_keys() -> None:
    output = " ".join(typed("test", "--help").output.split())
    assert "--rule JSON|YAML|@FILE" in output
    assert set(re.findall(r"\w+", output.partition("Its keys:")[2])) >= set(
        filter_requests.RULE_KEYS
    )
