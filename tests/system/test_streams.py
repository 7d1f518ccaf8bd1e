"""The command line when its output cannot be written, and when several start the same daemon."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import GANGER, Daemon
from tests.system.gates import PATIENCE_SECONDS, Gate, until_running

from ganger.transport.client.reachability import BACK, GONE

if TYPE_CHECKING:
    from pathlib import Path

    from ganger import Client

pytestmark = pytest.mark.passes_on


def shell(daemon: Daemon, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in which ``$G`` is the command line for this daemon."""
    command = " ".join([*GANGER, "--data", str(daemon.data)])
    return subprocess.run(
        ["bash", "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "G": command},
    )


@pytest.mark.parametrize("where", ["> /dev/full", ">&-"])
def test_output_that_cannot_be_written_is_one_clear_line(daemon: Daemon, where: str) -> None:
    done = shell(daemon, f"$G query-fields job {where}")
    assert done.returncode == 74, done
    reason = "it is closed" if where == ">&-" else "No space left on device"
    assert done.stderr == f"ganger: standard output: {reason}\n"


@pytest.mark.parametrize("words", ["job info {id}", "job logs -f {id}", "query-fields job"])
def test_a_command_whose_reader_leaves_ends_quietly_as_others_end_on_sigpipe(
    daemon: Daemon, client: Client, words: str
) -> None:
    long = {"OP_ID": "OP_EXEC", "argv": ["seq", "1", "30000"]}
    client.wait(job_id := client.submit(long))
    done = shell(daemon, f"$G {words.format(id=job_id)} | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.parametrize("is_one_pipe", [False, True])
def test_exec_whose_reader_leaves_says_that_the_job_goes_on_and_does_not_succeed(
    daemon: Daemon, client: Client, gate: Gate, *, is_one_pipe: bool
) -> None:
    script = f"seq 1 30000; dd bs=1 count=1 < {gate.path} 2>/dev/null; exit 7"
    both = "2>&1" if is_one_pipe else ""
    words = f"$G exec -- sh -c '{script}' {both} | head -1; echo ${{PIPESTATUS[0]}}"
    done = shell(daemon, words)
    [job] = client.jobs(statuses=["running"])
    follow = f"follow it with `ganger job watch {job.id}`"
    line = f"ganger: nobody reads the output any more; job {job.id} goes on; {follow}\n"
    assert (done.stdout, done.stderr) == ("1\n141\n", "" if is_one_pipe else line)
    gate.let_through()
    [ended] = client.wait(job.id)
    assert ended.outcome == "failed"


def test_exec_whose_reader_leaves_says_how_a_job_has_ended(daemon: Daemon) -> None:
    line = "ganger: nobody reads the output any more; job "
    # Nobody reads from the first byte on, and the job ends at once after the last.
    done = shell(daemon, "$G exec -- sh -c 'seq 1 9; exit 7' | true; echo ${PIPESTATUS[0]}")
    assert done.stdout == "141\n"
    assert done.stderr.startswith(line), done


def test_a_wait_whose_reader_leaves_does_not_say_that_the_job_has_ended_well(
    daemon: Daemon,
) -> None:
    submitted = """$G job submit --wait --op '{"OP_ID": "OP_EXEC", "argv": ["false"]}'"""
    done = shell(daemon, f"{submitted} 2>&1 | true; echo ${{PIPESTATUS[0]}}")
    assert done.stdout == "141\n"


def test_nobody_needs_an_output_to_which_nothing_is_written(daemon: Daemon) -> None:
    script = "$G job list 2>&- > /dev/null && $G exec -- true >&- && $G exec -- true >&- 2>&-"
    done = shell(daemon, script)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_follower_of_a_command_sees_that_the_daemon_is_gone_and_that_it_is_back(
    daemon: Daemon, client: Client, tmp_path: Path
) -> None:
    with Gate(tmp_path) as gate:
        script = f"dd bs=1 count=1 < {gate.path} 2>/dev/null; exit 3"
        following = daemon.begin("exec", "--", "sh", "-c", script)
        with following:
            assert following.stderr is not None
            try:
                change = next(iter(client.watch(log=False, timeout=PATIENCE_SECONDS)))
                until_running(client, change.job_id)
                daemon.kill()
                assert following.stderr.readline() == f"ganger: {GONE}\n"
                daemon.up()
                assert following.stderr.readline() == f"ganger: {BACK}\n"
                gate.let_through()
                output, rest = following.communicate(timeout=PATIENCE_SECONDS)
            finally:
                following.kill()
    assert (following.returncode, output, rest) == (3, ".", "")


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (">&-", "standard output: it is closed"),
        ("> /dev/full", "standard output: No space left on device"),
    ],
)
def test_a_trace_that_cannot_be_written_is_a_failure(
    daemon: Daemon, client: Client, where: str, line: str
) -> None:
    client.wait(client.submit({"OP_ID": "OP_TEST_DELAY", "duration": 0.001}))
    done = shell(daemon, f"$G queue record {where}")
    assert done.returncode not in (0, 130), done
    assert done.stderr == f"ganger: {line}\n"


def test_several_starts_of_the_daemon_at_once_start_one(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    try:
        with ThreadPoolExecutor(4) as pool:
            started = list(pool.map(lambda _: daemon.run("up", check=False), range(4)))
    finally:
        daemon.__exit__()
    assert [one.returncode for one in started] == [0] * 4, started
    assert sum("is ready" in one.stdout for one in started) == 1
    assert sum("already runs" in one.stdout for one in started) == 3


@pytest.mark.parametrize("words", ["job logs {id}", "exec -- seq 1 30000", "job info {id} -o json"])
def test_a_write_that_the_system_ends_in_its_middle_is_no_success_without_a_buffer_either(
    daemon: Daemon, client: Client, words: str, tmp_path: Path
) -> None:
    job_id = client.submit({"OP_ID": "OP_EXEC", "argv": ["seq", "1", "30000"]})
    client.wait(job_id)
    # The kernel takes so many KiB of the write, and the next one gets an error.
    script = (
        f"export PYTHONUNBUFFERED=1; ulimit -f 16; $G {words.format(id=job_id)} > {tmp_path}/out"
    )
    done = shell(daemon, script)
    assert (done.returncode, done.stderr) == (74, "ganger: standard output: File too large\n")
