"""What the README and First steps say of the daemon, read there and tried on one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.stand_in import Terminal
from tests.faults.harness import Daemon
from tests.system.gates import Gate, delay, end, shell, statuses, until_running

from ganger import AsyncClient, Client, JobStatus
from ganger.cli import plans
from ganger.cli.main import ganger
from ganger.storage import errors, opcodes, settings
from ganger.storage.jobs import jobs

ROOT = Path(__file__).parents[2]
FIRST_STEPS = (ROOT / "docs" / "first-steps.md").read_text(encoding="utf-8")
ON_N1 = {"locks": {"node": {"exclusive": ["n1"]}}}


def read(pattern: str, page: str = FIRST_STEPS) -> list[str]:
    """What stands at these places of the page."""
    found = re.search(pattern, " ".join(page.split()))
    assert found is not None, pattern
    return list(found.groups())


@pytest.fixture(name="daemon", scope="module")
def daemon_as_new_users_have_it(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("week"), holds_back=True) as daemon:
        yield daemon


@pytest.fixture(name="client")
def client_of_it(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture(name="gate")
def gate_for_jobs(tmp_path: Path) -> Iterator[Gate]:
    with Gate(tmp_path) as gate:
        yield gate


# Numbers and names.


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert [
        int(number) for number in read(r"Priorities go from (-\d+) \(most urgent\) to (\d+)")
    ] == [
        settings.PRIORITY_MIN,
        settings.PRIORITY_MAX,
    ]
    assert read(r"There are (\d+) run slots") == [str(settings.RUNNING_JOBS_MAX)]


def test_the_page_has_every_level_of_locks_and_every_status() -> None:
    [levels] = read(r"A lock has a level \(([^)]*)\)")
    assert set(re.findall(r"`([\w-]+)`", levels)) == set(opcodes.LockNeeds.__struct_encode_fields__)
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", FIRST_STEPS, re.MULTILINE)
    named = re.findall(r"`(\w+)`", " ".join(rows))
    assert sorted(named) == sorted(jobs.JobStatus)
    final = next(row for row in rows if "success" in row)
    assert {one for one in jobs.JobStatus if one.is_final} == set(re.findall(r"\w+", final))


def test_each_verb_of_the_page_is_one_of_both_clients() -> None:
    [verbs] = read(r"Among its \[verbs\]\(client\.md#verbs\) are (.*?);")
    named = re.findall(r"`(\w+)`", verbs)
    assert len(named) == 12
    for verb in named:
        assert callable(getattr(Client, verb))
        assert callable(getattr(AsyncClient, verb))


def test_the_class_of_an_error_says_who_must_act() -> None:
    classes = [
        getattr(errors, name) for name in read(r"for `(\w+)` the caller, for `(\w+)` the op")
    ]
    [passing] = read(r"after `(\w+)` the same call may work later")
    branches = [*classes, getattr(errors, passing)]
    assert [one.__base__ for one in branches] == [errors.GangerError] * 3
    assert issubclass(errors.OpcodeError, classes[0])
    assert issubclass(errors.StorageError, classes[1])
    assert issubclass(errors.BusyError, branches[2])


@pytest.mark.parametrize("name", read(r"`ganger completion (\w+)` \(or `(\w+)`, `(\w+)`\)"))
def test_a_shell_can_complete_commands(name: str) -> None:
    done = CliRunner().invoke(ganger, ["completion", name])
    assert done.exit_code == 0
    assert "_GANGER_COMPLETE" in done.output


# Plans, order and looking.


def test_the_plan_of_the_page_ends_as_the_page_says(client: Client) -> None:
    [text] = re.findall(
        r"cat > /tmp/plan\.yaml <<'END'\n(.*?)^END$", FIRST_STEPS, re.MULTILINE | re.DOTALL
    )
    planned = plans.read(text, "plan")
    ids = dict(
        zip(
            [one.name for one in planned],
            client.submit_many([one.as_submission() for one in planned]),
            strict=True,
        )
    )
    found = {job.id: job for job in client.wait(*ids.values(), timeout=60)}
    check, upgrade, alarm = (found[ids[name]] for name in ("check", "upgrade", "alarm"))
    assert [str(one.outcome) for one in (check, upgrade, alarm)] == ["failed", "skipped", "success"]
    assert upgrade.started is None
    assert upgrade.reason_ended.endswith(f"failed: job {check.id}")
    assert upgrade.cause == check.id
    # If the check succeeds, the alarm is not needed, and never starts.
    good = client.submit(shell("true"))
    idle = client.submit(shell("true"), depends=[[good, ["failed"]]])
    [job] = client.wait(idle, timeout=60)
    assert (str(job.outcome), job.started, job.cause) == ("skipped", None, good)
    assert job.reason_ended.startswith("not needed")


def test_a_job_that_need_not_wait_for_a_lock_passes_an_older_one(
    client: Client, gate: Gate
) -> None:
    read(r"Of jobs with one priority, those that (need not wait for a lock) start first")
    holder = client.submit(gate.job(**ON_N1))
    until_running(client, holder)
    older = client.submit(shell("true") | ON_N1)
    younger = client.submit(shell("true"))
    assert end(client, younger) == {younger: JobStatus.SUCCESS}
    # It takes no run slot, and the page says so of both kinds of waiting.
    assert statuses(client, older) == ["queued"]
    assert "node/n1" in str(client.explain(older))
    assert [job.process_id for job in client.jobs([older])] == [None]
    assert [row.pending for row in client.locks() if row.name == "node/n1"] == [[]]
    gate.let_through()
    assert end(client, holder, older) == dict.fromkeys((holder, older), JobStatus.SUCCESS)


def test_a_job_that_is_held_back_for_a_lock_wants_it(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    holder = client.submit(gate.job(**ON_N1))
    until_running(client, holder)
    later = client.submit(shell("true") | ON_N1)
    after = client.submit(shell("true"), depends=[later])
    listed = daemon.run("lock", "list").stdout
    assert re.search(rf"^node/n1 +exclusive +{holder} +- +exclusive:{later}$", listed, re.MULTILINE)
    assert client.waiting() == {"lock": 1, "dependency": 1}
    status = daemon.run("status").stdout
    assert "Waiting:    1 for other jobs, 1 for locks, without a process\n" in status
    gate.let_through()
    ended = end(client, holder, later, after)
    assert set(ended.values()) == {JobStatus.SUCCESS}
    assert client.waiting() == {}
    assert "Waiting:" not in daemon.run("status").stdout


def test_a_job_that_waits_for_a_lock_with_a_process_is_listed(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    holder = client.submit(gate.job(**ON_N1))
    until_running(client, holder)
    # Its first opcode needs no lock, so it has a process when it comes to its second one.
    later = client.submit([delay() | {"on_master": False}, shell("true") | ON_N1])
    changes = client.watch(later, log=False)
    assert any(getattr(part, "status", None) is JobStatus.WAITING for part in changes)
    listed = daemon.run("lock", "list").stdout
    assert re.search(rf"^node/n1 +exclusive +{holder} +exclusive:{later} +-$", listed, re.MULTILINE)
    gate.let_through()
    assert end(client, holder, later) == dict.fromkeys((holder, later), JobStatus.SUCCESS)


def test_a_job_that_waits_for_others_says_for_which(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    [words] = read(r'`job info` names them under "([^"]*)"')
    first = client.submit(gate.job())
    second = client.submit(delay(), depends=[first])
    assert statuses(client, second) == ["waiting"]
    assert f"  {words}: {first} (success)\n" in daemon.run("job", "info", str(second)).stdout
    assert f"it waits for job {first}" in daemon.run("job", "why", str(second)).stdout
    gate.let_through()
    assert end(client, second) == {second: JobStatus.SUCCESS}


def test_an_archived_job_is_left_out_of_listings_and_shown_on_request(
    daemon: Daemon, client: Client
) -> None:
    ended = client.submit(delay())
    end(client, ended)
    client.archive(ended)
    row = re.compile(rf"^{ended} ", re.MULTILINE)
    assert not row.search(daemon.run("job", "list").stdout)
    assert row.search(daemon.run("job", "list", "--archived").stdout)
    assert f"Job ID: {ended}\n" in daemon.run("job", "info", str(ended)).stdout


def test_a_listing_has_relative_times_on_a_terminal_and_absolute_ones_in_a_pipe(
    daemon: Daemon, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.submit(delay())
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    ganger.main(["--data", str(daemon.data), "job", "list"], standalone_mode=False)
    monkeypatch.undo()
    shown, piped = terminal.getvalue(), daemon.run("job", "list").stdout
    assert (" ago" in shown, "\x1b[" in shown) == (True, True)
    assert (" ago" in piped, "\x1b[" in piped) == (False, False)
    assert re.search(r" \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", piped)


# The daemon.


def test_a_second_up_says_that_a_daemon_runs(daemon: Daemon) -> None:
    done = daemon.run("up", "--no-rapi")
    assert f"already runs (pid {daemon.pid()})" in done.stdout


def test_the_data_directory_holds_what_the_page_names(daemon: Daemon, client: Client) -> None:
    [job, log] = read(
        r"the queue \(`queue/(job)-17` is a job, as JSON\), the daemon's log \(`([\w.]+)`"
    )
    job_id = client.submit(delay())
    end(client, job_id)
    # Its state is in the journal until the file is written.
    daemon.run("down")
    stored = json.loads((daemon.places.queue / f"{job}-{job_id}").read_text())
    assert stored["ops"][0]["input"]["OP_ID"] == "OP_TEST_DELAY"
    lines = [json.loads(line) for line in (daemon.data / log).read_text().splitlines()]
    assert all("event" in line for line in lines)
    daemon.up()


def test_a_program_on_another_machine_gets_in_with_its_key(daemon: Daemon, tmp_path: Path) -> None:
    """The commands of the section, typed; a free port in place of the one there."""
    [block] = re.findall(r"^```console\n(client\$.*?)^```$", FIRST_STEPS, re.MULTILINE | re.DOTALL)
    [call] = read(r"and on the client: `(Client\(.*?\))`")
    shown: dict[str, str] = {}
    for line in block.splitlines():
        _, _, words = line.partition("$ ganger ")
        typed = words.partition("#")[0].split()
        known = {"client.key": str(tmp_path / "client.key"), "NAME": "laptop", **shown}
        known["tcp://0.0.0.0:7610"] = "tcp://127.0.0.1:*"
        found = daemon.run(*[known.get(word, word) for word in typed], *SAFE.get(typed[0], ()))
        keys = re.findall(r"[0-9a-f]{64}", found.stdout)
        shown |= {"KEY": keys[-1]} if typed[:2] == ["key", "create"] and keys else {}
        shown |= {"...": keys[-1]} if typed[:2] == ["key", "authorise"] and keys else {}
    with daemon.client() as client:
        [remote] = [one for one in client.info().endpoints if one.startswith("tcp:")]
    call = call.replace("tcp://HOST:7610", remote).replace("...", shown["..."])
    script = f"from ganger import Client\nwith {call} as client:\n    print(client.info().pid)\n"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{daemon.pid()}\n", done.stderr
    daemon.run("down")
    # It remembers where it listened.
    daemon.run("up")
    with daemon.client() as client:
        assert any(one.startswith("tcp:") for one in client.info().endpoints)
    daemon.run("down")
    daemon.run("up", "--forget", "--no-rapi")
    with daemon.client() as client:
        assert all(one.startswith("ipc://") for one in client.info().endpoints)


SAFE: dict[str, tuple[str, ...]] = {"up": ("--no-rapi",)}


def test_a_job_runs_as_the_daemons_user_in_the_root_directory(client: Client) -> None:
    job_id = client.submit(shell("id -u; pwd"))
    [job] = client.wait(job_id, timeout=60)
    result: Any = job.ops[0].result if job.ops else None
    assert result["stdout_tail"] == f"{os.getuid()}\n/\n"


def test_the_page_names_what_make_takes_from_elsewhere() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [packages] = re.findall(r"^SYSTEM_PACKAGES := (.*)$", makefile, re.MULTILINE)
    named = f"`make test` also installs {' and '.join(f'`{one}`' for one in packages.split())}"
    assert named in " ".join(readme.split())
    assert "rm -rf .ganeti && cp -r" in makefile
    [jobs] = re.findall(r"make demo .* a plan of (\d+) jobs", readme)
    plan = plans.read((ROOT / "docs/examples/rolling-maintenance.yaml").read_text(), "plan")
    assert len(plan) == int(jobs)
