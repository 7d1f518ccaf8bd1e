"""What scripts rely on: the exit codes of `exec` and `wait`, and times that stand still."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.checkout import ROOT
from tests.faults.harness import GANGER, Daemon
from tests.system.gates import PATIENCE_SECONDS, Gate, until_running

if TYPE_CHECKING:
    from pathlib import Path

    from ganger import Client

pytestmark = pytest.mark.passes_on


@pytest.mark.parametrize(
    ("options", "script", "code", "line"),
    [
        ([], "exit 0", 0, ""),
        ([], "exit 3", 3, ""),
        ([], "exit 255", 255, ""),
        ([], "kill -TERM $$", 128 + signal.SIGTERM, "failed: ended by SIGTERM"),
        ([], "kill -KILL $$", 128 + signal.SIGKILL, "failed: ended by SIGKILL"),
        (["--timeout", "0.2"], "sleep 60", 124, "timed out: exceeded its time limit of 0.2 s"),
        # Its own code would be another one; the time limit is what a script must hear of.
        (
            ["--timeout", "0.2"],
            "trap 'exit 5' TERM; sleep 60 & wait",
            124,
            "timed out: exceeded its time limit of 0.2 s",
        ),
    ],
)
def test_exec_ends_with_the_code_of_its_command_and_says_what_is_no_code_of_it(
    daemon: Daemon, options: list[str], script: str, code: int, line: str
) -> None:
    done = daemon.run("exec", "--quiet", *options, "--", "sh", "-c", script, check=False)
    assert done.returncode == code, done
    last = f"\n{done.stderr}".splitlines()[-1]
    assert re.sub(r"^ganger: job \d+ ", "", last) == line


def test_exec_of_a_command_that_is_killed_on_request_does_not_succeed(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    script = f"trap 'exit 0' TERM; echo begun; cat {gate.path} & wait"
    following = daemon.begin("exec", "--", "sh", "-c", script)
    assert following.stdout is not None
    assert following.stdout.readline() == "begun\n"
    [job] = client.jobs(statuses=["running"])
    client.cancel(job.id, kill=True)
    _, shown = following.communicate(timeout=PATIENCE_SECONDS)
    killed = "was killed: on request, and ended by code 0; last line: begun"
    assert shown.endswith(f"ganger: job {job.id} {killed}\n")
    assert following.returncode == 1


def test_exec_ends_as_a_shell_does_when_its_command_cannot_be_started(daemon: Daemon) -> None:
    ends = {"no-such-command": 127, "/no/such/command": 127, "/etc/passwd": 126, "/etc": 126}
    for command, code in ends.items():
        done = daemon.run("exec", "--", command, check=False)
        assert done.returncode == code, done
        assert " failed: command cannot be started: " in done.stderr
    # The directory is at fault, not the command.
    assert daemon.run("exec", "--cwd", "/no/such", "--", "true", check=False).returncode == 1


def test_an_interruption_is_one_line_also_while_the_command_is_being_imported(
    tmp_path: Path,
) -> None:
    for needed in ("click", "msgspec", "uuid"):
        folder = tmp_path / needed
        folder.mkdir()
        module = folder / f"{needed}.py"
        module.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
        environment = {**os.environ, "PYTHONPATH": os.fspath(folder)}
        done = subprocess.run(
            [*GANGER, "--data", os.fspath(tmp_path), "job", "list"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert (done.returncode, done.stderr.strip()) == (130, "ganger: interrupted"), done


def test_exec_that_is_interrupted_ends_with_130_and_its_job_goes_on(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    command = ["exec", "--", "sh", "-c", f"echo begun; dd bs=1 count=1 < {gate.path} 2>/dev/null"]
    following = daemon.begin(*command)
    with following:
        try:
            change = next(iter(client.watch(log=False, timeout=PATIENCE_SECONDS)))
            until_running(client, change.job_id)
            # It follows: its signal meets it nowhere else.
            assert following.stdout is not None
            assert following.stdout.readline() == "begun\n"
            following.send_signal(signal.SIGINT)
            _, error = following.communicate(timeout=PATIENCE_SECONDS)
        finally:
            following.kill()
    assert following.returncode == 130
    assert f"job {change.job_id} goes on" in error
    gate.let_through()
    (job,) = client.wait(change.job_id, timeout=PATIENCE_SECONDS)
    assert job.status == "success"


def test_wait_says_how_each_job_ended_and_fails_unless_all_ended_well(
    daemon: Daemon, client: Client
) -> None:
    rule = client.add_filter(action="PAUSE", reason="maintenance")
    canceled = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]})
    assert client.cancel(canceled).accepted
    client.delete_filter(rule)
    failed = client.submit({"OP_ID": "OP_EXEC", "argv": ["false"]})
    succeeded = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]})
    unneeded = client.submit(
        {"OP_ID": "OP_EXEC", "argv": ["true"]}, depends=[[succeeded, ["failed"]]]
    )
    after = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]}, depends=[unneeded])
    barred = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]}, depends=[failed])
    of_canceled = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]}, depends=[canceled])
    ends = {
        canceled: (1, "was canceled: before it began"),
        failed: (1, "failed: exit code 1"),
        succeeded: (0, ""),
        unneeded: (0, f"was skipped: not needed, as EXEC(true) succeeded: job {succeeded}"),
        after: (0, f"was skipped: not needed, as EXEC(true) succeeded: job {succeeded}"),
        barred: (1, f"was skipped: EXEC(false) failed: job {failed}"),
        of_canceled: (1, f"was skipped: EXEC(true) was canceled: job {canceled}"),
    }
    for job_id, (code, told) in ends.items():
        done = daemon.run("job", "wait", str(job_id), check=False)
        assert done.stderr == (f"Job {job_id} {told}\n" if told else "")
        assert done.returncode == code, done
    assert daemon.run("job", "wait", str(succeeded), str(after)).returncode == 0
    everything = daemon.run("job", "wait", *map(str, ends), check=False)
    assert everything.returncode == 1


def test_a_plan_ends_well_whose_alarm_is_not_needed(daemon: Daemon, tmp_path: Path) -> None:
    first_steps = (ROOT / "docs" / "first-steps.md").read_text(encoding="utf-8")
    text = first_steps.partition("cat > /tmp/plan.yaml <<'END'\n")[2].partition("\nEND\n")[0]
    fails = "echo not good >&2; exit 1"
    assert text.count(fails) == 1
    for script, code, skipped in ((fails, 1, "upgrade"), ("true", 0, "alarm")):
        plan = tmp_path / "plan.yaml"
        plan.write_text(text.replace(fails, script))
        done = daemon.run("job", "submit", "--wait", str(plan), check=False)
        assert done.returncode == code, done
        assert re.findall(r"\((\w+)\) was skipped", done.stderr) == [skipped]


def test_exec_ends_with_0_if_its_command_was_not_needed(daemon: Daemon, client: Client) -> None:
    check = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]})
    alarm = daemon.run("exec", "--depend", f"{check}:failed", "--", "false", check=False)
    assert "was skipped: not needed" in alarm.stderr
    assert alarm.returncode == 0
    rest = daemon.run("exec", "--depend", f"{check}:always", "--", "echo", "x")
    assert rest.stdout == "x\n"
    failed = daemon.run("exec", "--", "false", check=False)
    assert failed.returncode == 1
    barred = daemon.run("exec", "--depend", str(check + 3), "--", "echo", "x", check=False)
    assert barred.stdout == ""
    assert barred.returncode == 1


def test_the_duration_of_an_ended_job_stands_still(daemon: Daemon, client: Client) -> None:
    client.wait(client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]}), timeout=PATIENCE_SECONDS)
    first = listed(daemon)
    assert first["ended"] is not None
    assert first["duration"] == pytest.approx(first["ended"] - first["started"])
    # Seen by the process that ended it, by a successor that reads files, and in the archive.
    daemon.replace_killed()
    assert listed(daemon) == first
    daemon.run("job", "archive", str(first["id"]))
    assert listed(daemon, "--archived") == first


def listed(daemon: Daemon, *options: str) -> Any:
    fields = ["--fields", "id,started,ended,duration", "-o", "json"]
    (job,) = json.loads(daemon.run("job", "list", *options, *fields).stdout)
    return job
