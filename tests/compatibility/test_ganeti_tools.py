"""Ganeti's own command line tools, unmodified, against the daemon's LUXI socket.

They are those of Debian's package ganeti-3.0, which `make test` unpacks. What they printed with a
real Ganeti 3.0 is in ``data/cli-output.txt``.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compatibility import ganeti_tools
from tests.compatibility.ganeti_tools import MASTER, Finished, Tools, good, unmet
from tests.faults.harness import Daemon, until
from tests.system.ganeti.ganeti_stub import GANETI, PYTHON

from ganger import JobStatus

DATA = Path(__file__).parent / "data"


# ---------------------------------------------------------------- as recorded


def recorded() -> dict[str, Finished]:
    """What the tools printed with Ganeti, by the command; output and errors are mixed."""
    parts = re.split(r"^\$ ", (DATA / "cli-output.txt").read_text(), flags=re.MULTILINE)
    found = {}
    for part in parts[1:]:
        command, _, rest = part.partition("\n")
        text, _, end = rest.rpartition("[exit ")
        found[command] = Finished(int(end.rstrip().rstrip("]")), text, "")
    return found


RECORDED = recorded()


def run(tools: Tools, command: str) -> Finished:
    """Run a command that is quoted as in the recordings; its arguments have no blanks."""
    return tools.run(*command.split())


def together(done: Finished) -> tuple[int, str]:
    return done.code, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "gnt-job list-fields",
        "gnt-job info 987654",
        "gnt-filter list-fields",
        "gnt-filter delete 01234567-89ab-4cde-8fff-0123456789ab",
        "gnt-cluster queue undrain",
        "gnt-debug locks",
        "gnt-node list -o name,role,group",
        "gnt-instance reboot nosuch",
        "gnt-cluster verify-config",
    ],
)
def test_output_is_as_recorded(tools: Tools, command: str) -> None:
    expected = RECORDED[command]
    assert together(run(tools, command)) == (expected.code, expected.stdout)


@pytest.mark.parametrize(
    "command", ["gnt-filter add --priority=-1 --action=PAUSE", "gnt-filter add --action=FROB"]
)
def test_a_rule_that_luxid_cannot_read_is_refused_in_its_words(tools: Tools, command: str) -> None:
    expected = RECORDED[command].stdout.partition("[null")[0]
    done = run(tools, command)
    assert done.code == 1
    assert done.stderr.startswith(expected)
    assert done.stdout == ""


def test_jobs_are_listed_as_recorded(tools: Tools) -> None:
    rows = {row.split()[0]: row.split()[1:] for row in RECORDED["gnt-job list"].stdout.splitlines()}
    ids = ["1", "4", "7", "8", "16", "24", "29"]
    shown = good(tools.run("gnt-job", "list", "--archived", "--no-headers", *ids))
    found = [line.split() for line in shown.splitlines()]
    assert [row[:-1] for row in found] == [[job_id, *rows[job_id]] for job_id in ids]
    aligned = good(tools.run("gnt-job", "list", "-o", "id,status,summary,archived", "1", "7"))
    assert aligned.splitlines()[:2] == [
        "ID Status  Summary               Archived",
        " 1 success CLUSTER_POST_INIT     N",
    ]
    done = tools.run("gnt-job", "list", "-o", "id,bogus", "1")
    assert done == (14, "ID bogus\n 1 ??\n", "Warning: Queried for unknown fields bogus\n")
    assert RECORDED["gnt-job list -o id,bogus"].code == 14


def test_a_network_is_described_as_recorded(tools: Tools) -> None:
    # Ganeti names its instances in the order of its hash table.
    expected = sorted(RECORDED["gnt-network info net1"].stdout.splitlines())
    assert sorted(good(tools.run("gnt-network", "info", "net1")).splitlines()) == expected


# ---------------------------------------------------------------- jobs


@pytest.fixture
def paused(tools: Tools) -> Iterator[None]:
    """No job starts; jobs that are left are canceled in the end."""
    uuid = good(tools.run("gnt-filter", "add", "--action=PAUSE", "--reason=maintenance")).strip()
    yield
    left = good(tools.run("gnt-job", "list", "--pending", "--no-headers", "-o", "id")).split()
    if left:
        good(tools.run("gnt-job", "cancel", *left))
    good(tools.run("gnt-filter", "delete", uuid))


def submitted(done: Finished) -> str:
    """The id of the job that a command with ``--submit`` has submitted."""
    assert (done.code, done.stdout) == (0, ""), done
    match = re.fullmatch(r"JobID: (\d+)\n", done.stderr)
    assert match, done
    return match[1]


def delay(tools: Tools, *arguments: str) -> str:
    return submitted(tools.run("gnt-debug", "delay", "--submit", "--no-master", *arguments))


def test_a_job_is_submitted_waited_for_and_archived(tools: Tools) -> None:
    job_id = delay(tools, "0.01")
    assert good(tools.run("gnt-job", "wait", job_id)) == ""
    recorded_watch = RECORDED["gnt-job watch 129"].stdout.replace("129", job_id)
    assert good(tools.run("gnt-job", "watch", job_id)) == recorded_watch
    assert good(tools.run("gnt-job", "archive", job_id)) == ""
    done = tools.run("gnt-job", "archive", job_id)
    assert together(done) == (1, f"Failed to archive job with ID '{job_id}'\n")
    assert "  Status: success\n" in good(tools.run("gnt-job", "info", job_id))
    row = good(tools.run("gnt-job", "list", "--archived", "--no-headers", job_id))
    assert row.split() == [job_id, "success", "TEST_DELAY(10000000", "ns)", "Y"]


@pytest.mark.usefixtures("paused")
def test_a_job_is_described_as_recorded(tools: Tools) -> None:
    job_id = delay(tools, "0.5")
    shown = good(tools.run("gnt-job", "info", job_id))
    kept = re.compile(r"^ *(?:- )?[\w ]+:", re.MULTILINE)
    assert kept.findall(shown) == [
        line
        for line in kept.findall(RECORDED["gnt-job info 128"].stdout)
        if "on_node_uuids" not in line
    ]
    assert "  Status: queued\n" in shown
    assert "            - delay\n" in shown


def test_a_running_job_is_watched_while_it_logs(
    tools: Tools, daemon: Daemon, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    words = ["sh", "-c", f"echo first; read line <{gate}; echo second; exit 3"]
    with daemon.client() as client:
        job_id = str(client.submit({"OP_ID": "OP_EXEC", "argv": words}))
    watching = [tools.start("gnt-job", "watch", job_id) for _ in range(2)]
    for tool in watching:
        tool.until_printed("first")
        assert "second" not in tool.stdout
    gate.write_text("go\n")
    ends = [tool.finished() for tool in watching]
    for code, stdout, stderr in ends:
        head, rule, *entries = stdout.splitlines()
        assert (head, rule) == (f"Output from job {job_id} follows", "-" * len(head))
        entry = re.compile(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} (\w+)")
        assert [match[1] for line in entries if (match := entry.fullmatch(line))] == [
            "first",
            "second",
        ]
        assert code == 1
        assert stderr.startswith(f"Job {job_id} failed: Failure: command execution error:\n")
    assert tools.run("gnt-job", "wait", job_id) == (1, "", ends[0].stderr)


def test_a_watched_job_logs_its_iterations(tools: Tools) -> None:
    done = tools.run("gnt-debug", "delay", "--no-master", "--print-jobid", "-r", "2", "0.01")
    job_id, *entries = good(done).splitlines()
    assert [line.partition(" - ")[2] for line in entries] == [
        f"INFO: Test delay iteration {number}/1" for number in (0, 1)
    ]
    again = good(tools.run("gnt-job", "watch", job_id)).splitlines()
    assert again[2:] == entries


@pytest.mark.usefixtures("paused")
def test_pending_jobs_are_changed_and_canceled(tools: Tools) -> None:
    first, second, third = (delay(tools, "0.01") for _ in range(3))
    done = tools.run("gnt-job", "change-priority", "--priority=high", first)
    assert good(done) == f"Priorities of pending opcodes for job {first} have been changed to -10\n"
    row = good(tools.run("gnt-job", "list", "--no-headers", "-o", "priority,oppriority", first))
    assert row.split() == ["-10", "[-10]"]
    assert good(tools.run("gnt-job", "cancel", first)) == f"Dequeued job {first}\n"
    ids = good(tools.run("gnt-job", "list", "--pending", "--no-headers", "-o", "id")).split()
    assert ids == [second, third]
    asked = tools.start("gnt-job", "cancel", "--queued")
    assert together(asked.finished())[0] == 13, "asked, and nobody said yes"
    done = tools.run("gnt-job", "cancel", "--force", "--pending")
    assert good(done) == f"Dequeued job {second}\nDequeued job {third}\n"
    rows = good(tools.run("gnt-job", "list", "--no-headers", "-o", "status", first, second, third))
    assert rows.split() == ["canceled"] * 3
    done = tools.run("gnt-job", "cancel", "--pending")
    assert done == unmet("wrong_state", "No jobs with the requested status have been found")
    assert good(tools.run("gnt-job", "archive", first)) == "", "in Ganeti, an error"


@pytest.mark.parametrize("command", ["cancel", "change-priority --priority=low"])
def test_unknown_jobs_are_not_found(tools: Tools, command: str) -> None:
    done = tools.run("gnt-job", *command.split(), "987654")
    assert together(done) == (1, "Job 987654 not found in queue\n")


@pytest.mark.parametrize("command", ["watch", "wait"])
def test_unknown_jobs_are_not_watched(tools: Tools, command: str) -> None:
    done = tools.run("gnt-job", command, "987654")
    assert done.code == 1
    assert done.stderr == "Job 987654 failed: Error checking job status: Can't load job file\n"


def test_a_running_job_is_canceled_and_killed(tools: Tools, daemon: Daemon) -> None:
    job_id = delay(tools, "600")
    await_status(daemon, job_id, JobStatus.RUNNING)
    done = tools.run("gnt-job", "change-priority", "--priority=low", job_id)
    assert re.fullmatch(rf"Job {job_id} with pid \d+ signaled\n", good(done))
    priority = good(tools.run("gnt-job", "list", "--no-headers", "-o", "priority", job_id))
    assert priority == "0\n", "nothing is left to change"
    done = tools.run("gnt-job", "cancel", job_id)
    assert together(done) == (1, f"Job {job_id} is no longer waiting in the queue\n")
    done = tools.run("gnt-job", "cancel", "--kill", "--yes-do-it", job_id)
    assert good(done).startswith(f"Job {job_id} is running and will be killed: ")
    failed = tools.run("gnt-job", "watch", job_id)
    assert failed.code == 1
    assert f"Job {job_id} failed: " in failed.stderr
    with daemon.client() as client:
        [op] = client.job(int(job_id)).ops or []
    assert op.result == ["OpExecError", ["killed on request"]]


def await_status(daemon: Daemon, job_id: str, status: JobStatus) -> None:
    with daemon.client() as client:
        until(client, int(job_id), status)


def test_locks_are_listed_with_owners_and_those_who_wait(tools: Tools, daemon: Daemon) -> None:
    owner = delay(tools, "-n", MASTER, "600")
    await_status(daemon, owner, JobStatus.RUNNING)
    waiting = delay(tools, "-n", MASTER, "600")
    await_status(daemon, waiting, JobStatus.WAITING)
    rows = [row.split() for row in good(tools.run("gnt-debug", "locks")).splitlines()]
    assert rows[0] == RECORDED["gnt-debug locks"].stdout.split()
    with daemon.client() as client:
        (node,) = client.query("node", ["uuid"]).data
    assert [f"node/{node[0][1]}", "exclusive", owner, f"exclusive:{waiting}"] in rows
    assert ["node/[lockset]", "-", "-", "-"] in rows
    done = tools.run("gnt-job", "cancel", waiting)
    assert good(done) == "Job successfully cancelled\n"
    shown = good(tools.run("gnt-job", "list", "--no-headers", "-o", "status", waiting))
    assert shown == "canceled\n", "the job has ended when the command has"
    good(tools.run("gnt-job", "cancel", "--kill", "--yes-do-it", owner))


def test_jobs_of_a_file_are_submitted_and_waited_for(tools: Tools, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text('[{"OP_ID": "OP_TEST_DELAY", "duration": 0.01, "on_master": false}]')
    shown = good(
        tools.run("gnt-debug", "submit-job", "-v", "--job-repeat=2", "--timing-stats", str(file))
    )
    # The tool waits first for the one that is further.
    first, second = sorted(re.findall(r"^Waiting for job (\d+) for file", shown, re.MULTILINE))
    assert int(second) == int(first) + 1
    assert f"Submitted jobs {first}, {second}\n" in shown
    assert re.findall(r"^([CT]):(\w+) ", shown, re.MULTILINE) == [
        ("C", "op"),
        ("C", "job"),
        ("T", "submit"),
        ("T", "exec"),
        ("T", "total"),
    ]


def test_the_configuration_is_verified_by_a_job(tools: Tools, tmp_path: Path) -> None:
    file = tmp_path / "verify.json"
    file.write_text('[{"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"}]')
    shown = good(tools.run("gnt-debug", "submit-job", str(file)))
    assert "Verifying cluster config" in shown


def test_jobs_are_archived_by_age(tools: Tools) -> None:
    good(tools.run("gnt-job", "wait", delay(tools, "0.01")))
    none = "Archived 0 jobs, 0 unchecked left\n"
    assert good(tools.run("gnt-job", "autoarchive", "5000d")) == none
    final = good(tools.run("gnt-job", "list", "--finished", "--no-headers", "-o", "id")).split()
    done = tools.run("gnt-job", "autoarchive", "all")
    assert good(done) == f"Archived {len(final)} jobs, 0 unchecked left\n", "in Ganeti, none"
    assert good(tools.run("gnt-job", "list", "--finished", "--no-headers")) == ""


# ---------------------------------------------------------------- rules, the queue, the watcher


def test_rules_are_added_replaced_and_deleted(tools: Tools) -> None:
    predicates = '--predicates=[["jobid", [">", "id", "watermark"]]]'
    words = ["--priority=10", predicates, "--action=PAUSE", "--reason=maintenance"]
    held = good(tools.run("gnt-filter", "add", *words)).strip()
    job_id = delay(tools, "0.01")
    limit = '--predicates=[["opcode", ["=", "OP_ID", "OP_INSTANCE_REBOOT"]]]'
    words = ["--priority=2", limit, "--action=RATE_LIMIT 3"]
    limited = good(tools.run("gnt-filter", "add", *words)).strip()
    head, *rows = good(tools.run("gnt-filter", "list")).splitlines()
    assert head.split() == RECORDED["gnt-filter list"].stdout.split("\n")[0].split()
    [second, first] = rows if rows[0].startswith(held) else rows[::-1]
    assert first.startswith(f"{limited} ")
    assert "[['opcode', ['==', 'OP_ID', 'OP_INSTANCE_REBOOT']]] ['RATE_LIMIT', 3]" in first
    assert re.fullmatch(
        rf"{held} \d+ +10 +\[\['jobid', \['>', 'id', 'watermark'\]\]\] +PAUSE +"
        r"\[\['gnt:user', 'maintenance', \d{19}\], \['luxid', '', \d{19}\]\]",
        second,
    )
    shown = good(tools.run("gnt-filter", "info", limited))
    names = re.compile(r"^ *([\w ]+):", re.MULTILINE)
    [recorded_info] = [text for command, text in RECORDED.items() if "filter info" in command]
    assert names.findall(shown) == names.findall(recorded_info.stdout)
    done = tools.run("gnt-filter", "replace", "--priority=7", "--action=CONTINUE", held)
    assert good(done) == f"{held}\n"
    assert good(tools.run("gnt-job", "wait", job_id)) == "", "nothing holds it any more"
    table = good(tools.run("gnt-filter", "list", "-o", "uuid,priority,action", "--no-headers"))
    rows = [f"{limited} 2 ['RATE_LIMIT', 3]", f"{held} 7 CONTINUE"]
    assert sorted(table.splitlines()) == sorted(rows)
    for uuid in (limited, held):
        assert good(tools.run("gnt-filter", "delete", uuid)) == ""
    assert good(tools.run("gnt-filter", "list", "--no-headers")) == ""


def test_a_job_that_a_rule_rejects_is_refused(tools: Tools) -> None:
    words = ['--predicates=[["reason", ["=", "reason", "unwanted"]]]', "--action=REJECT"]
    uuid = good(tools.run("gnt-filter", "add", *words, "--reason=not today")).strip()
    done = tools.run("gnt-debug", "delay", "--no-master", "--reason=unwanted", "0.01")
    assert done.code == 1
    assert uuid in done.stderr
    assert "not today" in done.stderr
    good(tools.run("gnt-debug", "delay", "--no-master", "0.01"))
    good(tools.run("gnt-filter", "delete", uuid))


def test_the_queue_is_drained_and_undrained(tools: Tools) -> None:
    assert good(tools.run("gnt-cluster", "queue", "drain")) == ""
    recorded_info = RECORDED["gnt-cluster queue info"].stdout
    assert good(tools.run("gnt-cluster", "queue", "info")) == recorded_info
    done = tools.run("gnt-debug", "delay", "--submit", "0.1")
    text = "Failure: the job queue is marked for drain and doesn't accept new requests\n"
    assert done == (1, "", text)
    assert good(tools.run("gnt-cluster", "queue", "undrain")) == ""
    unset = recorded_info.replace("set", "unset")
    assert good(tools.run("gnt-cluster", "queue", "info")) == unset


def test_the_watcher_is_paused(tools: Tools, daemon: Daemon) -> None:
    paused = good(tools.run("gnt-cluster", "watcher", "pause", "1h"))
    until_text = re.fullmatch(r"The watcher is paused until (\w+ \w+ .*)\.\n", paused)
    assert until_text
    pause_file = daemon.data / "watcher.pause"
    assert time.time() + 3_500 < float(pause_file.read_text()) < time.time() + 3_700
    assert good(tools.run("gnt-cluster", "watcher", "info")) == paused
    done = tools.run("gnt-cluster", "watcher", "continue")
    assert good(done) == "The watcher is no longer paused.\n"
    assert good(tools.run("gnt-cluster", "watcher", "info")) == "The watcher is not paused.\n"
    assert not pause_file.exists()


# ---------------------------------------------------------------- who may, and who answers


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
def test_who_may_only_read_is_refused_to_write(tools: Tools) -> None:
    reader, writer = (61_234, 61_234), (61_234, ganeti_tools.WRITERS)
    shown = good(tools.run("gnt-job", "list", "--archived", "1"))
    assert good(tools.run("gnt-job", "list", "--archived", "1", user=reader)) == shown
    for words in (["queue", "drain"], ["watcher", "continue"], ["add-tags", "no"]):
        done = tools.run("gnt-cluster", *words, user=reader)
        assert done.code == 1
        assert done.stderr.startswith("Failure: prerequisites not met for this operation:\n")
        assert "may only read here" in done.stderr
    assert good(tools.run("gnt-cluster", "queue", "undrain", user=writer)) == ""
    tools.socket.chmod(0o660)
    try:
        done = tools.run("gnt-job", "list", user=reader)
    finally:
        tools.socket.chmod(0o666)
    assert done.code == 1
    assert done.stderr.startswith("It seems you don't have permissions to connect")


@pytest.mark.parametrize("what", ["luxi_listener", "job_queue", "the daemon"])
def test_a_tool_watches_on_whatever_is_replaced(
    tools: Tools, daemon: Daemon, tmp_path: Path, what: str
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    words = ["sh", "-c", f"echo first; read line <{gate}; echo second"]
    with daemon.client() as client:
        job_id = str(client.submit({"OP_ID": "OP_EXEC", "argv": words}))
    tool = tools.start("gnt-job", "watch", job_id)
    tool.until_printed("first")
    if what == "the daemon":
        daemon.replace_killed()
    else:
        daemon.crash(what)
    gate.write_text("go\n")
    shown = good(tool.finished())
    assert [shown.count(word) for word in ("first", "second")] == [1, 1]


def test_a_tool_runs_as_a_shell_starts_it(tools: Tools) -> None:
    words = [*ganeti_tools.inside(tools.root), str(PYTHON), str(GANETI / "gnt-job"), "list", "-h"]
    done = run_program(words, ganeti_tools.environment())
    assert done[0] == 0
    assert done[1] == good(tools.run("gnt-job", "list", "-h"))


def test_ganetis_variables_lead_the_tools_to_the_socket(tools: Tools) -> None:
    root = tools.root / "try" / "here.example.com"
    place = root / "var/run/ganeti/socket"
    place.mkdir(parents=True)
    (place / "ganeti-query").symlink_to(tools.socket)
    elsewhere = {"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": root.name}
    done = run_program(
        [str(PYTHON), str(GANETI / "gnt-job"), "list", "--archived", "1", "7"],
        {**ganeti_tools.environment(), **elsewhere},
    )
    assert done == tools.run("gnt-job", "list", "--archived", "1", "7")


def run_program(words: list[str], environment: dict[str, str]) -> Finished:
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return Finished(done.returncode, done.stdout, done.stderr)
