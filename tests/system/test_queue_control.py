"""The page on control of the queue: what it says to type is typed, and comes out as it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import click
import pytest
from tests.faults.harness import Daemon
from tests.system.gates import Gate, delay, end, run_by, shell, statuses, until_running

from ganger import Client, JobStatus
from ganger.cli.main import ganger
from ganger.storage.filters import filters, predicates, rules
from ganger.storage.lab import traces

pytestmark = pytest.mark.passes_on

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "queue-control.md"
REFERENCE = DOCS / "reference" / "filter-rules.md"
QUEUED, SUCCESS = JobStatus.QUEUED, JobStatus.SUCCESS

TYPED = {
    "Storing, looking, changing",
    "For a time",
    "Predicates",
    "Limits without rules",
    "Holding a host",
    "A soft drain",
    "One maintenance, and nothing else",
    "A throttled evacuation",
    "Why does it not run?",
}
"""The sections of which a test types every command."""


# The two pages.


def both() -> str:
    """The page of tasks, and that of the language of rules."""
    return PAGE.read_text(encoding="utf-8") + REFERENCE.read_text(encoding="utf-8")


def sections() -> dict[str, str]:
    """The texts of both pages by their headings."""
    parts = re.split(r"^#{1,3} (.*)\n", both(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text: str) -> list[str]:
    """The indented lines, without their indentation; a file that is written is one command."""
    typed = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line[4:] for line in typed.split("\n") if line.startswith("    ")]
    found: list[str] = []
    for line in lines:
        if found and "<<'END'" in found[-1] and not found[-1].endswith("\nEND"):
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return found


def test_every_section_with_commands_is_typed() -> None:
    assert {heading for heading, text in sections().items() if commands(text)} == TYPED


def test_commands_within_the_text_are_commands() -> None:
    named = re.findall(r"`ganger ([a-z-]+(?: [a-z-]+)?)", both())
    assert named
    for words in named:
        group: click.Command | None = ganger
        for word in words.split():
            if not isinstance(group, click.Group):
                break  # The word is an argument.
            group = group.get_command(click.Context(group), word)
        assert group is not None, words


def rows(heading: str, title: str) -> list[list[str]]:
    """The cells of the table with this title in its first column."""
    table = sections()[heading].split(f"| {title} |", 1)[1].split("\n\n", 1)[0]
    lines = table.split("\n")[2:]
    cells = [re.split(r"(?<!\\)\|", line.strip("|")) for line in lines]
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in cells]


def test_the_table_of_actions_is_whole() -> None:
    named = {row[0].strip("`").split()[0] for row in rows("Actions", "action")}
    assert named == set(rules.ACTIONS)


def test_the_tables_of_predicates_and_operators_are_whole() -> None:
    assert {row[0].strip("`") for row in rows("Predicates", "kind")} == set(predicates.PREDICATES)
    forms = " ".join(row[0] for row in rows("Predicates", "expression"))
    signs = set(re.findall(r'\["(.*?)",', forms)) | set(re.findall(r"`([=!<>]+)`", forms))
    assert signs == set(filters._FORMS)


def example_predicates() -> list[str]:
    return [row[1].strip("`") for row in rows("Predicates", "jobs that")]


EXAMPLE_JOB = predicates.JobFacts.of(
    8,
    [
        {
            "OP_ID": "OP_EXEC",
            "argv": ["mkfs"],
            "priority": 0,
            "comment": "a repair",
            "locks": {"node": {"exclusive": ["n7"]}},
            "reason": [["gnt:user", "nightly", 1]],
        }
    ],
)
OTHER_JOB = predicates.JobFacts.of(
    7,
    [{"OP_ID": "OP_EXEC", "argv": ["true"], "priority": 0, "reason": [["gnt:user", "day", 1]]}],
)


def matches(wanted: Any, facts: predicates.JobFacts) -> bool:
    raw = {"uuid": "0" * 8 + "-0000-4000-8000-" + "0" * 12, "watermark": 7}
    rule = rules.parse_rule({**raw, "predicates": wanted})
    return all(
        predicates.compile_predicate(one, rule.watermark).matches(facts) for one in rule.predicates
    )


@pytest.mark.parametrize("text", example_predicates())
def test_each_example_matches_its_jobs_and_nothing_else(text: str) -> None:
    assert matches(json.loads(text), EXAMPLE_JOB)
    assert not matches(json.loads(text), OTHER_JOB)


# The commands.


class Typist:
    """A user that types the commands of one section, in order, into one shell."""

    def __init__(self, daemon: Daemon, heading: str) -> None:
        self.left = commands(sections()[heading])
        self._shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=daemon.folder,
            env={
                **os.environ,
                "GANGER_DATA": str(daemon.data),
                "GANGER_TEST_FOLDER": str(daemon.folder),
            },
        )
        self._answer(f'ganger() {{ "{sys.executable}" -m ganger.cli.main "$@"; }}')

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        self._shell.communicate()

    def type(self, beginning: str, **instead: str) -> str:
        """Type the next command, which begins like this, and give what it shows."""
        command = self.left.pop(0)
        assert command.startswith(beginning), command
        for written, here in instead.items():
            assert written.lstrip("_") in command
            command = command.replace(written.lstrip("_"), here)
        return self._answer(command)

    def variable(self, name: str) -> str:
        """What a variable of the shell holds."""
        return self._answer(f'echo "${name}"').strip()

    def _answer(self, command: str) -> str:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f'{command}\necho "<end $?>"\n')
        self._shell.stdin.flush()
        shown = ""
        for line in self._shell.stdout:
            if match := re.fullmatch(r"<end (\d+)>\n", line):
                assert match[1] == "0", f"{command}\n{shown}"
                return shown
            shown += line
        pytest.fail(f"the shell has ended: {command}\n{shown}")


def write_jobs(daemon: Daemon, name: str, opcode: dict[str, Any], count: int) -> None:
    """The file with jobs that the page submits."""
    text = json.dumps({"jobs": [{"ops": [opcode]} for _ in range(count)]})
    (daemon.folder / name).write_text(text)


def ids(shown: str) -> list[int]:
    return [int(line) for line in shown.split()]


def test_rules_are_stored_looked_at_changed_and_deleted(daemon: Daemon, client: Client) -> None:
    with Typist(daemon, "Storing, looking, changing") as reader:
        reader.type("rule=$(ganger filter add")
        uuid = reader.variable("rule")
        held = client.submit(delay())
        run_by(client)
        assert statuses(client, held) == ["queued"]

        assert re.search(
            f"^{uuid[:8]} .* in force .* PAUSE ", reader.type("ganger filter list"), re.MULTILINE
        )
        assert "tests wait until noon" in reader.type("ganger filter info")
        assert reader.type("ganger filter replace") == f"{uuid}\n"
        # What the rule held may start under the new one, which has the watermark of its day.
        assert end(client, held) == {held: SUCCESS}
        (row,) = client.filters()
        assert (row.action, row.watermark) == (["RATE_LIMIT", 2], held + 1)
        assert reader.type("ganger filter delete") == f"Filter rule {uuid} is deleted\n"
        assert (client.filters(), reader.left) == ([], [])


def test_a_rule_for_a_time_is_not_yet_in_force(daemon: Daemon, client: Client) -> None:
    with Typist(daemon, "For a time") as reader:
        uuid = reader.type("ganger filter add --action PAUSE --valid-from").strip()
        (row,) = client.filters([uuid])
        assert row.state == "not yet"
        assert row.valid_from is not None
        assert row.valid_until is not None
        assert 5_390 < row.valid_until - row.valid_from < 5_410
        run_by(client)
        assert reader.left == []


def test_predicates_from_a_file_hold_what_they_name(daemon: Daemon, client: Client) -> None:
    with Typist(daemon, "Predicates") as reader:
        reader.type("cat > rack7.yaml")
        uuid = reader.type("ganger filter add --predicates @rack7.yaml").strip()
        assert reader.left == []
    held = client.submit(shell("true"), reason="rewire rack 7")
    free = client.submit(delay(), reason="rewire rack 7")
    assert end(client, free) == {free: SUCCESS}
    run_by(client)
    assert statuses(client, held) == ["queued"]
    client.delete_filter(uuid)
    assert end(client, held) == {held: SUCCESS}


def test_a_limit_in_the_reason_needs_no_rule(daemon: Daemon, client: Client, gate: Gate) -> None:
    write_jobs(daemon, "evacuate.yaml", gate.job(), 5)
    with Typist(daemon, "Limits without rules") as reader:
        submitted = ids(reader.type("ganger job submit"))
        assert reader.left == []
    until_running(client, *submitted[:3])
    run_by(client)
    assert statuses(client, *submitted) == ["running"] * 3 + ["queued"] * 2
    gate.let_through(5)
    assert set(end(client, *submitted).values()) == {SUCCESS}


def test_a_host_is_held_and_released(daemon: Daemon, client: Client, gate: Gate) -> None:
    on_n7 = shell("true") | {"locks": {"node": {"shared": ["*"]}}}
    with Typist(daemon, "Holding a host") as reader:
        assert "nothing runs there" in reader.type("ganger hold node/n7")
        held = client.submit(on_n7)
        run_by(client)
        assert statuses(client, held) == ["queued"]
        assert reader.type("ganger release") == "node/n7 is released\n"
        assert end(client, held) == {held: SUCCESS}
        repair = daemon.folder / "repair-n7"
        exec_ = f"{sys.executable} -m ganger.cli.entry exec --lock node/n7 --reason 'repair n7'"
        repair.write_text(f"#!/bin/sh\n{exec_} -- echo repaired\n")
        repair.chmod(0o755)
        shown = reader.type("ganger hold node/n7 --except-reason")
        assert ("repaired\n" in shown, "node/n7 is released\n" in shown) == (True, True)
        first = client.submit(gate.job())
        one = client.submit(shell("true"), depends=[first])
        assert f"job {one} is held; " in reader.type("ganger hold", _4711=str(one))
        gate.let_through()
        end(client, first)
        run_by(client)
        assert statuses(client, one) == ["queued"]
        assert reader.type("ganger release", _4711=str(one)) == f"job {one} is released\n"
        assert reader.left == []
    assert end(client, one) == {one: SUCCESS}


def test_a_soft_drain_holds_what_comes_and_no_more(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    running = client.submit(gate.job())
    until_running(client, running)
    queued = client.submit(shell("true"), depends=[running])
    with Typist(daemon, "A soft drain") as reader:
        reader.type("drain=$(ganger filter add")
        (rule,) = client.filters()
        assert rule.valid_until is not None
        late = client.submit(shell("true"), priority=-20)
        gate.let_through()
        assert set(end(client, running, queued).values()) == {SUCCESS}
        assert reader.type("ganger job list --running").startswith("ganger: no jobs\n")
        assert re.findall(r"^(\d+) ", reader.type("ganger job list --pending"), re.MULTILINE) == [
            str(late)
        ]
        reader.type("ganger filter delete")
        assert end(client, late) == {late: SUCCESS}
        assert reader.left == []


def test_one_maintenance_and_nothing_else(daemon: Daemon, client: Client, gate: Gate) -> None:
    write_jobs(daemon, "repair.yaml", shell("true"), 2)
    before = client.submit(gate.job())
    until_running(client, before)
    with Typist(daemon, "One maintenance, and nothing else") as reader:
        shown = reader.type("ganger filter test")
        assert re.search(rf"^{before}  running  no rule  ->  PAUSE by ", shown, re.MULTILINE)
        assert client.filters() == []

        reader.type("repair=$(ganger filter add")
        reader.type("hold=$(ganger filter add")
        held = client.submit(shell("true"))
        almost = client.submit(shell("true"), reason="do not repair node7 yet")
        repairs = ids(reader.type("ganger job submit"))
        assert set(end(client, *repairs).values()) == {SUCCESS}
        assert statuses(client, held, almost) == ["queued"] * 2
        # What ran already has only one opcode, and is not interrupted.
        gate.let_through()
        assert end(client, before) == {before: SUCCESS}

        hold, repair = reader.variable("hold"), reader.variable("repair")
        assert [row.uuid for row in client.filters()] == [repair, hold]
        deleted = "Filter rule {} is deleted\n"
        assert reader.type("ganger filter delete") == deleted.format(hold) + deleted.format(repair)
        assert set(end(client, held, almost).values()) == {SUCCESS}
        assert reader.left == []


def test_a_throttled_evacuation(daemon: Daemon, client: Client, gate: Gate) -> None:
    write_jobs(daemon, "evacuate.yaml", gate.job(), 6)
    with Typist(daemon, "A throttled evacuation") as reader:
        reader.type("limit=$(ganger filter add")
        submitted = ids(reader.type("ganger job submit"))
        until_running(client, *submitted[:3])
        # The rest of the queue does not notice.
        run_by(client)
        assert statuses(client, *submitted) == ["running"] * 3 + ["queued"] * 3

        daemon.replace_killed()
        run_by(client)
        assert statuses(client, *submitted) == ["running"] * 3 + ["queued"] * 3

        reader.type("ganger filter replace")
        until_running(client, *submitted)
        reader.type("ganger filter delete")
        assert reader.left == []
    gate.let_through(6)
    assert set(end(client, *submitted).values()) == {SUCCESS}


def test_why_prints_the_cause_that_keeps_a_job_from_running(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    first = client.submit(gate.job())
    until_running(client, first)
    second = client.submit(shell("true"), depends=[first])
    with Typist(daemon, "Why does it not run?") as reader:
        shown = reader.type("ganger job why", _4711=str(second))
        assert shown.startswith(f"job {second} is waiting: it waits for job {first} to end\n")
        assert "Would start now: nothing\n" in reader.type("ganger queue simulate --slots 30")
        shown = reader.type("ganger queue simulate --ended", _4710=str(first), _4711=str(second))
        assert shown == f"Would start now: {second}\n"
        assert reader.type("ganger queue simulate --rule", _4700="0").startswith("Would start now")
        assert reader.left == []
    # Nothing of that has changed anything.
    assert statuses(client, first, second) == ["running", "waiting"]
    assert client.filters() == []
    gate.let_through()
    assert set(end(client, first, second).values()) == {SUCCESS}


# Estimates and traces.


def test_a_queue_knows_what_has_run_and_records_it_without_secrets(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    secret = "4711-very-secret"
    locks = {"node": {"exclusive": [secret]}}
    ended = client.submit(shell(f": {secret}") | {"locks": locks, "env": {secret: secret}})
    end(client, ended)
    first = client.submit(gate.job())
    until_running(client, first)
    second = client.submit(shell(f": {secret}") | {"comment": secret}, depends=[first])
    planned = client.eta().of(second)
    assert planned.run_seconds is not None
    # The first one has taken longer than ever before, unless this machine is very fast.
    assert planned.start is not None or planned.unknown == "overdue"
    gate.let_through()
    end(client, first, second)
    client.archive(ended)
    recorded = daemon.run("queue", "record").stdout
    assert secret not in recorded
    trace = traces.read(recorded.encode().splitlines(), "it")
    assert [job.id for job in trace.jobs] == [ended, first, second]
    assert trace.jobs[0].ops[0].forecast.node == traces.TracedLevel("exclusive", (1,))
    assert trace.jobs[2].depends == (first,)
    (daemon.folder / "week.trace").write_text(recorded)
    shown = daemon.run("queue", "simulate", "--trace", str(daemon.folder / "week.trace")).stdout
    assert "hold-back" in shown


# A plan of which a rule rejects a part, at the command line.

PLAN = {
    "jobs": [
        {"name": "d", "after": ["a"], "ops": [shell("true")]},
        {"name": "a", "ops": [shell("true")]},
        {"name": "b", "ops": [delay()]},
        {"name": "c", "after": ["b"], "ops": [shell("true")]},
    ]
}


def test_of_a_plan_what_no_rule_rejects_is_stored_printed_and_waited_for(
    daemon: Daemon, client: Client
) -> None:
    rule = client.add_filter(
        action="REJECT",
        priority=4,
        predicates=[["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]],
        reason="no delays; job 3 is unwanted too",
    )
    reason = f"by filter rule {rule} (priority 4, reason: no delays; job 3 is unwanted too)"
    complaint = (
        f"ganger: job 'b' is rejected {reason}\n"
        "ganger: job 'c' is not stored, because it depends on job 'b', which is rejected\n"
    )
    plan = daemon.folder / "plan.json"
    plan.write_text(json.dumps(PLAN))
    words = ("job", "submit", "--key", "once", "--wait", "--quiet", str(plan))

    assert daemon.run("job", "submit", "--dry-run", str(plan), check=False).stderr == complaint
    done = daemon.run(*words, check=False)
    first, second = ids(done.stdout.replace("\ta", "").replace("\td", ""))
    assert done.stdout == f"{first}\ta\n{second}\td\n"
    assert (done.stderr, done.returncode) == (complaint, 1)
    # It has been waited for.
    assert statuses(client, first, second) == ["success"] * 2

    # A repetition stores nothing and gets the same answer, even when the rule is gone.
    client.delete_filter(rule)
    again = daemon.run(*words, "-o", "json", check=False)
    assert [(one["id"], one["name"]) for one in json.loads(again.stdout)] == [
        (first, "a"),
        (second, "d"),
        (None, "b"),
        (None, "c"),
    ]
    assert (again.stderr, again.returncode) == (complaint, 1)
    other = daemon.run("job", "submit", "--key", "once", "--op", json.dumps(delay()), check=False)
    shown = "ganger: key: a submission of 4 jobs, not 1, is stored under it (ids "
    assert (other.stdout, other.stderr.startswith(shown), other.returncode) == ("", True, 1)
    assert [job.id for job in client.jobs()] == [first, second]


def test_a_plan_and_single_jobs_that_are_rejected_are_named(daemon: Daemon, client: Client) -> None:
    failed = client.submit(shell("exit 3"))
    end(client, failed)
    rule = client.add_filter(action="REJECT", reason="closed")
    plan = daemon.folder / "plan.json"
    plan.write_text(json.dumps(PLAN))
    reason = f"is rejected by filter rule {rule} (priority 0, reason: closed)\n"

    done = daemon.run("job", "submit", str(plan), check=False)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr == "".join(f"ganger: job '{name}' {reason}" for name in "adbc")
    for words in (("exec", "--", "true"), ("job", "retry", str(failed))):
        done = daemon.run(*words, check=False)
        assert (done.stdout, done.returncode) == ("", 1)
        assert done.stderr == f"ganger: the job {reason}"
    assert [job.id for job in client.jobs()] == [failed]


def test_a_request_for_an_ended_job_is_answered_with_its_end(
    daemon: Daemon, client: Client
) -> None:
    ended, archived = client.submit(shell("exit 3")), client.submit(shell("true"))
    end(client, ended, archived)
    client.archive(archived)
    for words in (("cancel",), ("cancel", "--kill"), ("change-priority", "--priority", "3")):
        done = daemon.run("job", *words, str(ended), str(archived), "99", check=False)
        assert done.stderr.splitlines() == [
            f"ganger: Job {ended} has ended (failed)",
            f"ganger: Job {archived} has ended (success) and is archived",
            "ganger: there is no job 99",
        ]
        assert (done.stdout, done.returncode) == ("", 1)
    # On the wire it is Ganeti's text, which its clients may know.
    assert client.cancel(ended).text == f"Job {ended} not found in queue"
    assert client.set_priority(ended, 3).text == f"Job {ended} not found in queue"


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_a_running_job_is_not_canceled_and_the_command_that_ends_it_is_named(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    running = client.submit(gate.job())
    until_running(client, running)
    done = daemon.run("job", "cancel", str(running), check=False)
    assert done.stderr == (
        f"ganger: Job {running} is no longer waiting in the queue: it is running; --kill ends it\n"
    )
    gate.let_through()
    assert end(client, running) == {running: SUCCESS}
