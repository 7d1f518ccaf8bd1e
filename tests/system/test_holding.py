"""`ganger hold` and `ganger release`: a host without jobs while somebody works on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.harness import GANGER, Daemon, wait_until_true
from tests.system.gates import (
    IN_BOTH_PLACEMENTS,
    PATIENCE_SECONDS,
    Gate,
    end,
    shell,
    statuses,
    until_running,
)

from ganger import Client, JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.passes_on

SUCCESS = JobStatus.SUCCESS
SHARED: dict[str, Any] = {"node": {"shared": ["n7"]}}
ALL: dict[str, Any] = {"node": {"shared": ["*"]}}
OTHER: dict[str, Any] = {"node": {"exclusive": ["n8"]}}


def command(locks: dict[str, Any]) -> dict[str, Any]:
    return shell("true") | {"locks": locks}


class Typed:
    """A command of the command line that runs until it ends, with its standard error by lines."""

    def __init__(self, daemon: Daemon, *words: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*GANGER, "--data", str(daemon.data), *words], stdout=pipe, stderr=pipe, text=True
        )
        assert self.process.stderr is not None
        self.lines: Iterator[str] = iter(self.process.stderr.readline, "")

    def hear(self, part: str) -> str:
        """The next line of standard error that has this part."""
        seen = []
        for line in self.lines:
            seen.append(line)
            if part in line:
                return line
        raise AssertionError(f"{part!r} was not said: {seen}")

    def ended(self) -> tuple[int, str, str]:
        """Exit code, the rest of standard output and of standard error."""
        shown, complaints = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, shown, complaints


@IN_BOTH_PLACEMENTS
def test_it_waits_for_what_runs_holds_what_comes_and_lets_it_go(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    first, second = (client.submit(gate.job(locks=locks)) for locks in (SHARED, ALL))
    until_running(client, first, second)
    script = f"{' '.join(GANGER)} --data {daemon.data} job list --fields id,status; exit 7"
    hold = Typed(daemon, "hold", "node/n7", "--drain", "--", "sh", "-c", script)
    assert f"job {first} is running: " in hold.hear("; has node/n7 (shared)")
    assert f"job {second} is running: " in hold.hear("; has node/* (shared)")
    assert "node/n7 is held; 2 jobs run there still: " in hold.hear("is held")
    held = [client.submit(command(locks)) for locks in (SHARED, ALL)]
    other = client.submit(command({"node": {"shared": ["n8"]}}))
    assert end(client, other) == {other: SUCCESS}
    gate.let_through()
    hold.hear("has ended with success")
    hold.hear("node/n7 is held; 1 job runs there still: ")
    gate.let_through()
    code, shown, complaints = hold.ended()
    assert (code, complaints.splitlines()[-1]) == (7, "ganger: node/n7 is released")
    states = dict(line.split() for line in shown.splitlines())
    assert [states[str(job)] for job in (first, second, *held)] == ["success"] * 2 + ["queued"] * 2
    assert set(end(client, *held).values()) == {SUCCESS}
    assert client.filters() == []


def test_a_hold_without_a_command_stays_until_it_is_released(
    daemon: Daemon, client: Client
) -> None:
    done = daemon.run("hold", "node/n7", "--reason", "new memory")
    text = "node/n7 is held, and nothing runs there; `ganger release node/n7` ends that\n"
    assert (done.stdout, done.stderr) == (text, "")
    job = client.submit(command(ALL))
    end(client, client.submit(command(OTHER)))
    assert statuses(client, job) == ["queued"]
    why = daemon.run("job", "why", str(job)).stdout
    assert "paused by the rule 'hold node/n7' (" in why
    assert ": new memory): it takes every node lock (shared)\n" in why
    assert "It would start if: `ganger release node/n7`\n" in why
    daemon.replace_killed()
    assert daemon.run("release", "node/n7").stdout == "node/n7 is released\n"
    assert end(client, job) == {job: SUCCESS}
    again = daemon.run("release", "node/n7", check=False)
    assert (again.returncode, again.stderr) == (1, "ganger: node/n7 is not held\n")


def test_a_hold_ends_by_itself_and_may_be_made_again(daemon: Daemon, client: Client) -> None:
    until = time.time() + 2
    daemon.run("hold", "node/n7", "--until", f"{until}")
    job = client.submit(command(SHARED))
    why = daemon.run("job", "why", str(job)).stdout
    assert "; that ends by itself at " in why
    assert end(client, job) == {job: SUCCESS}
    assert time.time() >= until
    daemon.run("hold", "node/n7", "--until", "+1h")
    assert len(client.filters()) == 1


def test_an_older_rule_that_accepts_or_limits_does_not_undo_a_hold(
    daemon: Daemon, client: Client
) -> None:
    client.add_filter(action="ACCEPT")
    daemon.run("hold", "node/n7")
    job = client.submit(command(SHARED))
    end(client, client.submit(command(OTHER)))
    assert statuses(client, job) == ["queued"]


def test_jobs_with_the_reason_of_the_maintenance_run_and_are_not_waited_for(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    repair = client.submit(gate.job(locks=SHARED), reason="repair n7")
    until_running(client, repair)
    daemon.run("hold", "node/n7", "--except-reason", "repair n7", "--except-reason", "backup")
    for reason in ("repair n7", "backup"):
        assert set(end(client, client.submit(command(SHARED), reason=reason)).values()) == {SUCCESS}
    held = client.submit(command(SHARED), reason="repair n70")
    # Another hold concerns them all the same.
    daemon.run("hold", "node/n8")
    both = client.submit(command({"node": {"shared": ["n7", "n8"]}}), reason="repair n7")
    end(client, client.submit(command({"node": {"shared": ["n9"]}})))
    assert statuses(client, repair, held, both) == ["running", "queued", "queued"]
    gate.let_through()
    assert end(client, repair) == {repair: SUCCESS}


def test_a_job_between_two_opcodes_gives_the_node_back(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    job = client.submit([gate.job(locks=SHARED), command(SHARED)])
    until_running(client, job)
    hold = Typed(daemon, "hold", "node/n7")
    hold.hear("1 job runs there still")
    gate.let_through()
    assert hold.ended()[0] == 0
    # It gives its lock back a moment before it says that it waits.
    wait_until_true(lambda: statuses(client, job) == ["queued"], "the job waits")
    daemon.run("release", "node/n7")
    assert end(client, job) == {job: SUCCESS}


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_hold_with_the_command(
    daemon: Daemon, client: Client, number: signal.Signals, code: int
) -> None:
    ready = daemon.folder / "ready"
    os.mkfifo(ready)
    # A shell that has a trap ends when its child does: both get the signal, as from a terminal.
    script = f"echo > {ready}; exec sleep 600"
    pipe = subprocess.PIPE
    # Who runs the tests may ignore some signals (nohup), and a child would, too.
    ganger = ["env", "--default-signal", *GANGER, "--data", str(daemon.data)]
    with subprocess.Popen(
        [*ganger, "hold", "node/n7", "--", "sh", "-c", script],
        stderr=pipe,
        text=True,
        start_new_session=True,
    ) as process:
        ready.read_text()
        assert [rule.name for rule in client.filters()] == ["hold node/n7"]
        if number is signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, complaints = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, complaints) == (code, "ganger: node/n7 is released\n")
    assert client.filters() == []


@pytest.mark.parametrize(
    ("words", "code", "left"),
    [((), 130, ["hold node/n7"]), (("--", "true"), 130, [])],
)
def test_ctrl_c_while_it_waits_leaves_a_hold_that_has_no_command(
    daemon: Daemon, client: Client, gate: Gate, words: tuple[str, ...], code: int, left: list[str]
) -> None:
    running = client.submit(gate.job(locks=SHARED))
    until_running(client, running)
    hold = Typed(daemon, "hold", "node/n7", *words)
    hold.hear(f"1 job runs there still: {running}")
    hold.process.send_signal(signal.SIGINT)
    assert hold.ended()[0] == code
    assert [rule.name for rule in client.filters()] == left
    gate.let_through()
    end(client, running)


def test_a_hold_that_does_not_wait_says_what_still_runs(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    jobs = [client.submit(gate.job(locks=SHARED)) for _ in range(2)]
    until_running(client, *jobs)
    done = daemon.run("hold", "node/n7", "--no-wait")
    runs = f"2 jobs run there still: {jobs[0]}, {jobs[1]}; `ganger release node/n7` ends that"
    assert (done.stdout, done.stderr) == (f"node/n7 is held; {runs}\n", "")
    held = client.submit(command(SHARED))
    assert "job " in daemon.run("hold", "node/n7", "--no-wait", "--drain").stderr
    end(client, client.submit(command(OTHER)))
    assert statuses(client, held) == ["queued"]
    gate.let_through(2)
    end(client, *jobs)


def test_several_locks_are_held_together_and_what_runs_on_any_is_waited_for(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    first, second = (client.submit(gate.job(locks=locks)) for locks in (SHARED, OTHER))
    until_running(client, first, second)
    hold = Typed(daemon, "hold", "node/n7", "node/n8", "node/n9", "--drain", "--", "echo", "worked")
    both = f"2 jobs run there still: {first}, {second}\n"
    assert hold.hear("held;") == f"ganger: node/n7, node/n8 and node/n9 are held; {both}"
    held = client.submit(command(OTHER))
    done = daemon.run("hold", "node/n7", "node/n8", "--timeout", "0.2s", check=False)
    stay = "node/n7 and node/n8 stay held; `ganger release node/n7 node/n8` ends that\n"
    assert (done.returncode, done.stderr.endswith(stay)) == (124, True)
    gate.let_through()
    hold.hear("has ended with success")
    assert "are held; 1 job runs there still: " in hold.hear("held;")
    gate.let_through()
    code, shown, complaints = hold.ended()
    assert (code, shown) == (0, "worked\n")
    released = [f"ganger: node/{name} is released" for name in ("n7", "n8", "n9")]
    assert complaints.splitlines()[-3:] == released
    assert set(end(client, first, second, held).values()) == {SUCCESS}
    assert client.filters() == []


@pytest.mark.parametrize(
    ("words", "told", "left"),
    [
        ((), "; node/n7 stays held; `ganger release node/n7` ends that\n", ["hold node/n7"]),
        (("--", "echo", "worked"), "; echo has not run\nganger: node/n7 is released\n", []),
    ],
)
def test_a_hold_that_has_waited_long_enough_keeps_the_host_unless_it_has_a_command(
    daemon: Daemon, client: Client, gate: Gate, words: tuple[str, ...], told: str, left: list[str]
) -> None:
    running = client.submit(gate.job(locks=SHARED))
    until_running(client, running)
    done = daemon.run("hold", "node/n7", "--timeout", "0.5s", *words, check=False)
    assert (done.returncode, done.stdout) == (124, "")
    text = f"ganger: after 0.5s, 1 job runs there still: {running}"
    assert done.stderr.endswith(f"{text}{told}")
    assert [rule.name for rule in client.filters()] == left
    gate.let_through()
    end(client, running)


def test_the_same_hold_goes_on_when_it_is_typed_again(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    repair, other = (
        client.submit(gate.job(locks=SHARED), reason=reason) for reason in ("repair", "other")
    )
    until_running(client, repair, other)
    daemon.run("hold", "node/n7", "--no-wait", "--except-reason", "repair", "--reason", "memory")
    again = Typed(daemon, "hold", "node/n7", "--until", "+1h")
    assert again.hear("is held already (").endswith(
        ": memory); that hold goes on; it stays as it is, without --until of this command\n"
    )
    # The exceptions of the first hold are those of the second one.
    assert again.hear("is held;") == f"ganger: node/n7 is held; 1 job runs there still: {other}\n"
    [rule] = client.filters()
    assert rule.valid_until is None
    gate.let_through(2)
    assert again.ended()[0] == 0
    end(client, repair, other)


def test_a_hold_that_somebody_releases_meanwhile_does_not_say_that_it_holds(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    running = client.submit(gate.job(locks=SHARED))
    until_running(client, running)
    hold = Typed(daemon, "hold", "node/n7")
    hold.hear("1 job runs there still")
    daemon.run("release", "node/n7")
    gate.let_through()
    code, shown, complaints = hold.ended()
    assert (code, shown) == (1, "")
    assert complaints.startswith("ganger: somebody has released node/n7 meanwhile")


@IN_BOTH_PLACEMENTS
def test_a_hold_outlasts_the_death_of_the_daemon(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    running = client.submit(gate.job(locks=SHARED))
    until_running(client, running)
    hold = Typed(daemon, "hold", "node/n7")
    hold.hear("1 job runs there still")
    daemon.replace_killed()
    next_one = Typed(daemon, "hold", "node/n7")
    next_one.hear("is held already (")
    assert next_one.hear("is held;").endswith(f"there still: {running}\n")
    assert hold.process.poll() is None
    gate.let_through()
    text = "node/n7 is held, and nothing runs there; `ganger release node/n7` ends that\n"
    assert [one.ended()[:2] for one in (hold, next_one)] == [(0, text)] * 2
    end(client, running)


def test_a_hold_that_ends_while_jobs_still_run_runs_no_command(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    running = client.submit(gate.job(locks=SHARED))
    until_running(client, running)
    hold = Typed(daemon, "hold", "node/n7", "--until", "+2s", "--", "echo", "worked")
    text = "ganger: the hold of node/n7 has ended by itself, and jobs still run there\n"
    code, shown, complaints = hold.ended()
    assert (code, shown, complaints.endswith(text)) == (1, "", True)
    assert client.filters() == []
    gate.let_through()
    end(client, running)


def test_one_job_is_held_and_released(daemon: Daemon, client: Client, gate: Gate) -> None:
    first = client.submit([gate.job(), shell("true")])
    until_running(client, first)
    second = client.submit(shell("true"), depends=[first])
    text = f"job {first} runs, and is held before its next opcode; `ganger release {first}` ends"
    assert text in daemon.run("hold", str(first)).stdout
    assert f"job {second} is held; " in daemon.run("hold", str(second), "--until", "+1h").stdout
    gate.let_through()
    assert "queued" in (str(getattr(one, "status", "")) for one in client.watch(first, log=False))
    assert f"paused by the rule 'hold {first}'" in daemon.run("job", "why", str(first)).stdout
    done = daemon.run("release", str(first), "node/n1", str(second), check=False)
    assert (done.returncode, done.stdout) == (
        1,
        f"job {first} is released\njob {second} is released\n",
    )
    assert done.stderr == f"ganger: node/n1 is not held; held are {second}\n"
    assert set(end(client, first, second).values()) == {SUCCESS}
    done = daemon.run("hold", str(first), check=False)
    assert (done.returncode, done.stderr) == (1, f"ganger: job {first} has ended: success\n")
    assert client.filters() == []


def test_a_job_is_held_and_released_by_what_stands_for_it_elsewhere(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    before = client.submit(gate.job())
    old = client.submit(shell("true"), name="backup", depends=[before])
    assert (
        f"job {old} is held; `ganger release {old}` ends that"
        in daemon.run("hold", "backup").stdout
    )
    new = client.submit(shell("true"), name="backup", depends=[before])
    last = client.submit(shell("true"), name="node", depends=[before])
    assert f"job {last} is held" in daemon.run("hold", "@last").stdout
    # The name is that of the held job, though another one is newer.
    assert daemon.run("release", "backup").stdout == f"job {old} is released\n"
    done = daemon.run("release", "backup", "no-such", "@last", check=False)
    assert (done.returncode, done.stdout) == (1, f"job {last} is released\n")
    complaints = done.stderr.splitlines()
    assert complaints[0].startswith("ganger: there is no job called 'no-such', and a lock is ")
    assert complaints[1] == f"ganger: job {new} is not held; held are {last}"
    # A name that a level of locks has, too.
    assert f"job {last} is held" in daemon.run("hold", "node").stdout
    assert daemon.run("release", "node").stdout == f"job {last} is released\n"
    gate.let_through()
    assert set(end(client, before, old, new, last).values()) == {SUCCESS}


def test_a_plan_is_released_by_its_name_and_a_hold_wants_one_job(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    plan = daemon.folder / "plan.json"
    jobs = [{"name": name, "ops": [gate.job()]} for name in ("first", "second")]
    plan.write_text(json.dumps({"name": "night", "jobs": jobs}))
    daemon.run("job", "submit", str(plan))
    done = daemon.run("hold", "night", check=False)
    assert done.returncode == 2
    assert "'night' is a plan of 2 jobs: name one of them" in done.stderr
    for name in ("first", "second"):
        daemon.run("hold", name)
    [first], [second] = client.find("first", "second")
    said = daemon.run("release", "night").stdout
    assert said == f"job {first} is released\njob {second} is released\n"
    gate.let_through(2)
