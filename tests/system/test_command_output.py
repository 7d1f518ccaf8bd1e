"""The output of commands: kept whole, followed as it comes, whatever fails meanwhile."""

from __future__ import annotations

import hashlib
import os
import pty
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.harness import GANGER, LOOK_SECONDS, Daemon, wait_for_end
from tests.system.gates import PATIENCE_SECONDS, Gate
from tests.transport.client.both_clients import Connect, connect_either

from ganger import Client, UnknownJobError
from ganger.storage.alive import process_identity
from ganger.storage.jobs.job_views import OutputChunk, StatusChange
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.queue_files.output_limits import LimitsInForce

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = pytest.mark.passes_on

__all__ = ["connect_either"]

LINES = 60_000
"""Several pages of output, so that a follower is in the middle of it when something fails."""


def command(script: str, **parameters: Any) -> dict[str, Any]:
    return {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", script], **parameters}


def seq(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last + 1))


def text(chunks: Iterable[OutputChunk], stream: str = "stdout") -> bytes:
    found = list(chunks)
    assert not [chunk for chunk in found if chunk.gap]
    return b"".join(chunk.data for chunk in found if chunk.stream == stream)


def exec_process(daemon: Daemon, *words: str, **streams: Any) -> subprocess.Popen[bytes]:
    arguments = [*GANGER, "--data", str(daemon.data), "exec", "--", *words]
    return subprocess.Popen(arguments, **streams)


def test_exec_passes_on_every_byte_of_both_outputs(daemon: Daemon, tmp_path: Path) -> None:
    out, err = os.urandom(3_000_001), b"\x1b]0;x\x07\xff" * 100_000
    (tmp_path / "out").write_bytes(out)
    (tmp_path / "err").write_bytes(err)
    script = f"cat {tmp_path}/out & cat {tmp_path}/err >&2; wait; exit 7"
    done = subprocess.run(
        [*GANGER, "--data", str(daemon.data), "exec", "--", "sh", "-c", script],
        check=False,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 7
    assert (len(done.stdout), len(done.stderr)) == (len(out), len(err))
    assert (done.stdout, done.stderr) == (out, err)


def test_output_is_shown_of_a_job_that_is_pending_running_ended_or_archived(
    daemon: Daemon, connect: Connect, tmp_path: Path
) -> None:
    client = connect(daemon.data)
    with Gate(tmp_path) as gate:
        first = client.submit(command(f"head -c1 {gate.path}"))
        script = f"echo one; echo bad >&2; head -c1 {gate.path}2; printf two"
        os.mkfifo(f"{gate.path}2")
        job_id = client.submit([command(script), command("echo next")], depends=[first])
        assert text(client.logs(job_id)) == b""
        parts = client.logs(job_id, follow=True, timeout=PATIENCE_SECONDS)
        gate.let_through()
        begun = [next(parts), next(parts)]
        assert {(chunk.stream, chunk.data) for chunk in begun} == {
            ("stdout", b"one\n"), ("stderr", b"bad\n"),
        }  # fmt: skip
        assert text(client.logs(job_id)) == b"one\n"
        with open(f"{gate.path}2", "wb") as fifo:
            fifo.write(b".")
        assert text(parts) == b".twonext\n"
    for is_archived in (False, True):
        if is_archived:
            client.archive(job_id)
        assert text(client.logs(job_id)) == b"one\n.twonext\n"
        assert text(client.logs(job_id), "stderr") == b"bad\n"
        assert text(client.logs(job_id, tail=1)) == b".twonext\n"
        assert text(client.logs(job_id, op=1)) == b"next\n"
        assert text(client.logs(job_id, follow=True, stream="stdout")) == b"one\n.twonext\n"
    with pytest.raises(UnknownJobError):
        list(client.logs(9_999))
    with pytest.raises(UnknownJobError):
        list(client.logs(9_999, follow=True))


@pytest.mark.parametrize(
    "failing", ["output_reader", "wire_listener", "job_queue", "executor", "daemon"]
)
def test_a_follower_misses_nothing_whatever_fails(daemon: Daemon, gate: Gate, failing: str) -> None:
    half = LINES // 2
    script = f"seq 1 {half}; head -c1 {gate.path} >/dev/null; seq {half + 1} {LINES}; echo e >&2"
    chunks: list[OutputChunk] = []
    has_half = threading.Event()

    def follow() -> None:
        with daemon.client() as own:
            for chunk in own.logs(job_id, follow=True, timeout=PATIENCE_SECONDS):
                chunks.append(chunk)
                if chunk.data.endswith(b"\n%d\n" % half):
                    has_half.set()

    with daemon.client() as client:
        job_id = client.submit(command(script))
        follower = threading.Thread(target=follow)
        follower.start()
        assert has_half.wait(PATIENCE_SECONDS)
        if failing == "daemon":
            daemon.kill()
            # The command goes on alone.
            gate.let_through()
            daemon.up()
        else:
            daemon.crash(failing)
            gate.let_through()
        follower.join(PATIENCE_SECONDS)
        assert not follower.is_alive()
        assert text(chunks) == seq(1, LINES)
        assert text(chunks, "stderr") == b"e\n"
        assert text(client.logs(job_id)) == seq(1, LINES)
        assert client.job(job_id).status is JobStatus.SUCCESS


def test_a_reader_that_does_not_read_holds_up_neither_the_command_nor_the_daemon(
    daemon: Daemon, client: Client
) -> None:
    with exec_process(daemon, "seq", "1", "2000000", stdout=subprocess.PIPE) as stopped:
        try:
            change = next(iter(client.watch(log=False, timeout=PATIENCE_SECONDS)))
            [job] = client.wait(change.job_id, timeout=PATIENCE_SECONDS)
            assert job.status is JobStatus.SUCCESS
            assert stopped.poll() is None
            assert stopped.stdout is not None
            found = hashlib.sha256(stopped.stdout.read()).digest()
        finally:
            stopped.kill()
    assert found == hashlib.sha256(seq(1, 2_000_000)).digest()


def test_output_above_the_limit_is_dropped_and_marked(daemon: Daemon, client: Client) -> None:
    job_id = client.submit(command("seq 1 100000; exit 3", output_limit=10))
    [job] = client.wait(job_id, timeout=PATIENCE_SECONDS)
    assert job.ops is not None
    result = job.ops[0].result[1][1]
    size = len(seq(1, 100_000))
    assert (result["stdout_bytes"], result["truncated"]) == (size, True)
    chunks = list(client.logs(job_id))
    assert [(c.data, c.gap, c.missing) for c in chunks] == [
        (b"1\n2\n3\n4\n5\n", "", 0), (b"", "limit", 0), (b"", "limit", size - 10),
    ]  # fmt: skip
    shown = daemon.run("job", "logs", str(job_id))
    assert shown.stdout == "1\n2\n3\n4\n5\n"
    assert f"job {job_id}: {size - 10} bytes of output were dropped" in shown.stderr


def test_the_limit_of_a_job_counts_over_all_its_opcodes(daemon: Daemon, client: Client) -> None:
    limit_to_15_bytes(daemon, client)
    job_id = client.submit([command("printf 0123456789"), command("printf 0123456789")])
    [job] = client.wait(job_id, timeout=PATIENCE_SECONDS)
    assert job.status is JobStatus.SUCCESS
    chunks = list(client.logs(job_id))
    assert b"".join(c.data for c in chunks) == b"012345678901234"
    assert [(c.op_index, c.gap, c.missing) for c in chunks if c.gap] == [
        (1, "limit", 0), (1, "limit", 5),
    ]  # fmt: skip


@pytest.mark.parametrize("code", [0, 3])
def test_exec_says_what_was_dropped_and_ends_as_its_command(
    daemon: Daemon, client: Client, code: int
) -> None:
    limit_to_15_bytes(daemon, client)
    script = f"printf 01234567890123456789; exit {code}"
    shown = daemon.run("exec", "--", "sh", "-c", script, check=False)
    assert (shown.returncode, shown.stdout) == (code, "012345678901234")
    assert "5 bytes of output were dropped above its limit" in shown.stderr


def limit_to_15_bytes(daemon: Daemon, client: Client) -> None:
    in_force = LimitsInForce(str(daemon.places.queue))
    client.limits(disk={"output_job_bytes": 15})
    end = time.monotonic() + PATIENCE_SECONDS
    while in_force.now().job_bytes != 15 and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)


def test_what_a_killed_job_had_written_is_there(client: Client, gate: Gate) -> None:
    job_id = client.submit(command(f"seq 1 {LINES}; cat {gate.path}"))
    parts = client.logs(job_id, follow=True, timeout=PATIENCE_SECONDS)
    seen = b""
    while not seen.endswith(b"\n%d\n" % LINES):
        seen += next(parts).data
    pid = client.job(job_id).process_id
    assert pid is not None
    descriptor = process_identity.open_pidfd(pid)
    os.kill(pid, signal.SIGKILL)
    wait_for_end(descriptor)
    assert text(parts) == b""
    assert client.job(job_id).status is JobStatus.ERROR
    assert text(client.logs(job_id)) == seen == seq(1, LINES)


def test_a_terminal_gets_no_control_characters_of_a_command(daemon: Daemon) -> None:
    leader, terminal = pty.openpty()
    script = "printf 'a\\033]0;title\\007\\r\\nb\\302\\233c\\n'; printf '\\377\\n'"
    try:
        with exec_process(daemon, "sh", "-c", script, stdout=terminal, stderr=terminal) as done:
            assert done.wait(PATIENCE_SECONDS) == 0
        shown = os.read(leader, 10_000)
    finally:
        os.close(leader)
        os.close(terminal)
    assert shown == b"a\\x1b]0;title\\x07\r\r\nb\\x9bc\r\n\\xff\r\n"


def test_output_of_several_pages_is_followed_to_the_end(daemon: Daemon, connect: Connect) -> None:
    client = connect(daemon.data)
    job_id = client.submit(command(f"seq 1 {LINES}; echo e >&2"))
    assert text(client.logs(job_id, follow=True)) == seq(1, LINES)
    assert text(client.logs(job_id, tail=2, stream="stdout")) == seq(LINES - 1, LINES)
    *parts, last = client.follow(job_id)
    assert isinstance(last, StatusChange)
    assert last.status is JobStatus.SUCCESS
    whole = [part for part in parts if isinstance(part, OutputChunk)]
    assert text(whole, "stderr") == b"e\n"


def test_a_daemon_that_is_asked_for_much_output_does_not_grow(client: Client) -> None:
    job_id = client.submit(command("head -c 100000000 /dev/urandom"))
    count = sum(len(chunk.data) for chunk in client.logs(job_id, follow=True))
    assert count == 100_000_000
    before = client.info().memory["daemon"]
    assert sum(len(chunk.data) for chunk in client.logs(job_id)) == count
    assert client.info().memory["daemon"] - before < 30_000_000
