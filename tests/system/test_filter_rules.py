"""Filter rules on a real daemon: in force when they are answered, limits that are never exceeded.

What ran, and how many at a time, is judged by what the operations themselves leave behind.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import termios
import threading
import time
from pathlib import Path
from typing import Self

import pytest
from tests.faults.harness import GANGER, Daemon
from tests.system.gates import PATIENCE_SECONDS, delay, end, run_by, shell, statuses

from ganger import Client, JobStatus
from ganger.storage import errors
from ganger.storage.filters.rules import PROPOSED_UUID
from ganger.transport.client.filter_requests import RULE_KEYS

pytestmark = pytest.mark.passes_on

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "filter-rules.md"
THREADS = 4
QUEUED, SUCCESS, CANCELED = JobStatus.QUEUED, JobStatus.SUCCESS, JobStatus.CANCELED
ON_DELAYS = ["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]
LET_BY = ["reason", ["=", "reason", "let by"]]


class Submitters:
    """Threads that submit one job after the other, each with a client of its own."""

    def __init__(self, daemon: Daemon) -> None:
        self.ran = daemon.folder / "ran"
        self.ran.mkdir()
        self.taken: list[tuple[float, int]] = []
        """When each job's submission began, and its id."""
        self.refused: list[tuple[float, str]] = []
        self._daemon = daemon
        self._is_over = False
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._submit) for _ in range(THREADS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)

    def let_more_come(self, count: int = 60) -> None:
        """Returns when so many more submissions have been answered."""
        with self._changed:
            wanted = self._count() + count
            assert self._changed.wait_for(lambda: self._count() >= wanted, PATIENCE_SECONDS)

    def ids(self, *, since: float = 0.0, until: float = float("inf")) -> set[int]:
        return {job_id for began, job_id in self.taken if since < began <= until}

    def have_run(self) -> set[int]:
        return {int(path.name) for path in self.ran.iterdir()}

    def _count(self) -> int:
        return len(self.taken) + len(self.refused)

    def _submit(self) -> None:
        with self._daemon.client() as client:
            while not self._is_over:
                began = time.monotonic()
                try:
                    job_id = client.submit(shell(f"touch {self.ran}/$GANGER_JOB_ID"))
                    self.taken.append((began, job_id))
                except errors.RejectedError as error:
                    self.refused.append((began, str(error)))
                with self._changed:
                    self._changed.notify_all()


# In force before it is acknowledged.


def test_nothing_that_is_submitted_after_a_pause_was_answered_runs(
    daemon: Daemon, client: Client
) -> None:
    client.add_filter(predicates=[LET_BY], action="ACCEPT")
    with Submitters(daemon) as crowd:
        crowd.let_more_come()
        uuid = client.add_filter(priority=1, action="PAUSE")
        answered = time.monotonic()
        crowd.let_more_come()
    held = crowd.ids(since=answered)
    assert held
    assert crowd.ids(until=answered)
    run_by(client)
    assert not held & crowd.have_run()
    assert {job.status for job in client.jobs(held)} == {QUEUED}
    client.delete_filter(uuid)
    assert set(end(client, *crowd.ids()).values()) == {SUCCESS}
    assert crowd.have_run() == crowd.ids()


def test_nothing_that_is_submitted_after_a_rejection_was_answered_gets_in(
    daemon: Daemon, client: Client
) -> None:
    with Submitters(daemon) as crowd:
        crowd.let_more_come()
        uuid = client.add_filter(priority=7, action="REJECT", reason="closed")
        closed = time.monotonic()
        crowd.let_more_come()
        before = crowd.ids(since=closed)
        client.delete_filter(uuid)
        opened = time.monotonic()
        crowd.let_more_come()
    assert not before
    assert crowd.ids(since=opened)
    assert not [text for began, text in crowd.refused if began > opened]
    texts = {text for _, text in crowd.refused}
    assert texts == {f"the job is rejected by filter rule {uuid} (priority 7, reason: closed)"}
    # Those that were pending when the rule came were canceled, all others ran.
    ended = end(client, *crowd.ids())
    assert set(ended.values()) <= {SUCCESS, CANCELED}
    assert crowd.have_run() == {job_id for job_id, how in ended.items() if how is SUCCESS}


@pytest.mark.parametrize(
    "component", ["config_store", "filter_evaluator", "scheduler", "job_queue", "daemon"]
)
def test_rules_stay_in_force_when_what_obeys_them_is_replaced(
    daemon: Daemon, client: Client, component: str
) -> None:
    touched = daemon.folder / "touched"
    on_touches = ["opcode", ["=[]", "argv", f"touch {touched}"]]
    client.add_filter(predicates=[LET_BY], action="ACCEPT")
    client.add_filter(priority=1, predicates=[ON_DELAYS], action="REJECT")
    uuid = client.add_filter(priority=1, predicates=[on_touches], action="PAUSE")
    held = client.submit(shell(f"touch {touched}"))
    rules = client.filters()
    if component == "daemon":
        daemon.replace_killed()
    else:
        daemon.crash(component)
    with pytest.raises(errors.RejectedError):
        client.submit(delay())
    late = client.submit(shell(f"touch {touched}"))
    run_by(client)
    assert client.filters() == rules
    assert statuses(client, held, late) == ["queued", "queued"]
    assert not touched.exists()
    client.delete_filter(uuid)
    assert end(client, held, late) == {held: SUCCESS, late: SUCCESS}


@pytest.mark.parametrize("component", ["filter_evaluator", "scheduler", "job_queue"])
def test_a_change_of_rules_is_answered_although_a_component_fails_meanwhile(
    daemon: Daemon, client: Client, component: str
) -> None:
    ids = client.submit_many([shell("true")] * 50)
    daemon.crash(component)
    uuid = client.add_filter(predicates=[ON_DELAYS], action="REJECT", timeout=20)
    daemon.crash(component)
    with pytest.raises(errors.RejectedError):
        client.submit(delay())
    assert [row.uuid for row in client.filters()] == [uuid]
    assert set(end(client, *ids).values()) == {SUCCESS}


# Limits.

LIMIT = 3
JOBS = 40


@pytest.mark.parametrize("kind", ["rule", "reason", "rule that came later"])
def test_a_limit_is_never_exceeded_also_when_the_daemon_is_killed(
    daemon: Daemon, client: Client, kind: str
) -> None:
    running, seen = daemon.folder / "running", daemon.folder / "seen"
    running.mkdir()
    mine = f"{running}/$GANGER_JOB_ID"
    script = f"touch {mine}; ls {running} | wc -l >> {seen}; sleep 0.03; rm {mine}"
    members = ["reason", ["=~", "reason", "evacuation"]]
    first = client.add_filter(predicates=[members], action=["RATE_LIMIT", LIMIT])
    reason = f"rate-limit:{LIMIT}:moves" if kind == "reason" else "evacuation of rack 7"
    ids = client.submit_many([shell(script)] * JOBS, reason=reason)
    others = client.submit_many([shell("true")] * JOBS)
    for place in (5, 15, 25):
        client.wait(ids[place], timeout=PATIENCE_SECONDS)
        if kind == "rule that came later" and place == 15:
            # Another rule with another UUID: those that run are counted under it too.
            client.add_filter(predicates=[members], action=["RATE_LIMIT", LIMIT])
            client.delete_filter(first)
        daemon.replace_killed()
    assert set(end(client, *ids, *others).values()) == {SUCCESS}
    counts = [int(line) for line in seen.read_text().split()]
    assert len(counts) == JOBS
    assert max(counts) == LIMIT


# Windows.


def test_a_client_lists_a_rule_with_the_state_of_its_window(client: Client) -> None:
    now = time.time()
    windows = {
        "expired": (now - 20, now - 10),
        "not yet": (now + 1_000, None),
        "in force": (now - 10, now + 1_000),
    }
    made = {
        client.add_filter(
            predicates=[ON_DELAYS], action="REJECT", valid_from=begin, valid_until=until
        ): state
        for state, (begin, until) in windows.items()
    }
    rows = client.filters()
    assert {row.uuid: row.state for row in rows} == made
    assert {row.state: (row.valid_from, row.valid_until) for row in rows} == windows
    with pytest.raises(errors.RejectedError) as caught:
        client.submit(delay())
    [obeyed] = [uuid for uuid, state in made.items() if state == "in force"]
    assert obeyed in str(caught.value)
    client.delete_filter(obeyed)
    [job_id] = client.submit_many([delay()])
    assert end(client, job_id) == {job_id: SUCCESS}


def test_a_job_that_is_paused_until_a_moment_starts_by_itself_then(client: Client) -> None:
    until = time.time() + 1.0
    uuid = client.add_filter(predicates=[ON_DELAYS], action="PAUSE", valid_until=until)
    job_id = client.submit(delay())
    assert end(client, job_id) == {job_id: SUCCESS}
    started = client.job(job_id).started
    assert started is not None
    assert started >= until
    assert [(row.uuid, row.state) for row in client.filters()] == [(uuid, "expired")]


# What people see.


def test_rules_are_listed_on_a_terminal(daemon: Daemon, client: Client) -> None:
    uuid = client.add_filter(action="PAUSE", valid_until=time.time() + 540)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 132))
    environment = {
        name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}
    }
    with open(ours, "rb", closefd=True, buffering=0) as terminal:
        done = subprocess.run(
            [*GANGER, "--data", str(daemon.data), "filter", "list"],
            check=False,
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_SECONDS,
            env={**environment, "TERM": "xterm"},
        )
        os.close(theirs)
        assert (done.returncode, done.stderr) == (0, "")
        shown = terminal.read(4_096).decode()
    assert "\x1b[1mRULE" in shown
    # A column of zeros or dashes alone is left out.
    row = rf"^{uuid[:8]}  in force  PAUSE  +in 8m \d+s  every job\r$"
    assert re.search(row, shown, re.MULTILINE)


def test_a_proposed_rule_is_marked_among_the_stored_ones(daemon: Daemon, client: Client) -> None:
    stored = client.add_filter(action="PAUSE", reason="closed")
    job_id = client.submit(delay())
    proposed = {"action": "REJECT"}
    # Behind the stored rule, whose priority and watermark may be the same.
    [row] = client.test_filters(proposed)
    assert (row.now, row.then) == ((stored, "PAUSE"), (stored, "PAUSE"))
    [row] = client.test_filters(proposed, without=stored)
    assert row.then == (PROPOSED_UUID, "REJECT")
    [(ended, text)] = client.simulate(rule=proposed, without=stored).ended
    assert (ended, text) == (job_id, f"rejected by filter rule {PROPOSED_UUID}")
    done = daemon.run("filter", "test", "--rule", '{"action": "REJECT"}', "--without", stored)
    first = done.stdout.splitlines()[0]
    assert first == f"{job_id}  queued  PAUSE by {stored}  ->  REJECT by the proposed rule"
    assert [rule.uuid for rule in client.filters()] == [stored]


def test_a_rule_as_it_is_printed_can_be_changed_and_proposed(
    daemon: Daemon, client: Client
) -> None:
    pause = client.add_filter(priority=1, action="PAUSE")
    uuid = client.add_filter(
        priority=2, predicates=[ON_DELAYS], action=["RATE_LIMIT", 3], reason="slow"
    )
    job_id = client.submit(delay())
    [document] = json.loads(daemon.run("filter", "list", uuid, "-o", "json").stdout)
    file = daemon.folder / "rule.json"
    for priority, applied in ((2, ""), (0, f"  ->  RATE_LIMIT 3 by {uuid}")):
        document["priority"] = priority
        file.write_text(json.dumps(document))
        output = daemon.run("filter", "test", "--rule", f"@{file}").stdout
        assert output.splitlines()[0] == f"{job_id}  queued  PAUSE by {pause}{applied}"


def test_the_document_of_a_rule_is_as_the_page_has_it(daemon: Daemon, client: Client) -> None:
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("### A rule as a document\n")[2].partition("\n## ")[0]
    keys = re.findall("`(\\w+)`", " ".join(re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)))
    assert sorted(keys) == sorted(RULE_KEYS)
    assert PROPOSED_UUID in section
    [document] = re.findall("^```yaml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    file = daemon.folder / "night.yaml"
    file.write_text(document)
    stored = client.add_filter(priority=9, action="PAUSE")
    job_id = client.submit(shell("true"))
    line = daemon.run("filter", "test", "--rule", f"@{file}").stdout.splitlines()[0]
    was = f"{job_id}  queued  PAUSE by {stored}"
    assert line == f"{was}  ->  RATE_LIMIT 10 by the proposed rule"


# What is refused changes nothing.


def test_a_repeated_batch_stores_the_accepted_jobs_alone(client: Client) -> None:
    client.add_filter(predicates=[ON_DELAYS], action="REJECT", reason="no delays")
    for _ in range(2):
        # The same again with the same key: a client that got no answer the first time.
        with pytest.raises(
            errors.RejectedError, match=r"job \d+ is rejected .*no delays"
        ) as caught:
            client.submit_many([shell("true"), delay(), shell("true")], key="batch")
        ids = caught.value.ids
        assert len(ids) == 3
        assert ids[1] is None
        assert [job.id for job in client.jobs()] == [ids[0], ids[2]]


def test_ids_that_a_watermark_has_passed_are_never_given_to_later_jobs(
    daemon: Daemon, client: Client
) -> None:
    # Rejected jobs take ids too; a soft drain must hold whatever comes after it was added.
    client.add_filter(predicates=[ON_DELAYS], action="REJECT")
    with pytest.raises(errors.RejectedError):
        client.submit_many([shell("true"), *[delay()] * 5])
    drain = client.add_filter(predicates=[["jobid", [">", "id", "watermark"]]], action="PAUSE")
    [watermark] = [row.watermark for row in client.filters([drain])]
    daemon.replace_killed()
    assert client.submit(shell("true")) > watermark


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"priority": -1}, "priority: Invalid value for non-negative type"),
        ({"action": ["RATE_LIMIT", 0]}, "action: RATE_LIMIT argument must be a positive"),
        ({"predicates": [["jobid", ["=~", "id", "("]]]}, r"predicates\[0\]\[1\]\[2\]: broken"),
        ({"uuid": "ABC"}, "uuid: Unable to parse UUID"),
    ],
)
def test_a_wrong_rule_is_refused_and_changes_nothing(
    client: Client, fields: dict[str, object], place: str
) -> None:
    with pytest.raises(errors.FilterRuleError, match=place):
        client.add_filter(**fields)  # type: ignore[arg-type]
    assert client.filters() == []
    with pytest.raises(errors.UnknownFilterError):
        client.delete_filter("0" * 8 + "-0000" * 3 + "-" + "0" * 12)
