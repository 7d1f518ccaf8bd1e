"""Large jobs on a real daemon: what is stored can be started, read, followed and archived."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.faults.harness import Daemon

from ganger import BadRequestError, Client, JobStatus
from ganger.storage import opcodes, settings
from ganger.storage.jobs import jobs

if TYPE_CHECKING:
    from ganger.storage.jobs.job_views import JobInfo

SUCCESS, ERROR = JobStatus.SUCCESS, JobStatus.ERROR
MEGABYTE = 1024 * 1024


def command(*argv: str, **fields: Any) -> dict[str, Any]:
    return {"OP_ID": "OP_EXEC", "argv": list(argv), **fields}


def ended(client: Client, job_id: int) -> JobInfo:
    [job] = client.wait(job_id, timeout=60)
    return job


def test_five_megabytes_of_nul_are_read_by_their_command_and_archived(
    daemon: Daemon, client: Client
) -> None:
    job_id = client.submit([command("wc", "-c", stdin="\0" * 5 * MEGABYTE)])
    job = ended(client, job_id)
    assert job.status is SUCCESS
    assert job.ops is not None
    assert job.ops[0].result["stdout_tail"] == f"{5 * MEGABYTE}\n"
    queue = daemon.places.queue
    assert (queue / f"job-{job_id}").stat().st_size < MEGABYTE
    assert (queue / f"spool/job-{job_id}-input-0").stat().st_size == 5 * MEGABYTE
    client.archive(job_id)
    assert not (queue / f"spool/job-{job_id}-input-0").exists()
    again = client.retry(job_id, whole=True)
    [count] = [op.result["stdout_tail"] for op in ended(client, again).ops or ()]
    assert count == f"{5 * MEGABYTE}\n"


def test_a_job_that_is_too_large_is_refused_at_once(client: Client) -> None:
    with pytest.raises(
        BadRequestError, match=r"^the job is too large: \d+ bytes as JSON, at most \d+ are"
    ):
        client.submit([command("true", env={"A": "\1" * MEGABYTE})])
    assert list(client.jobs()) == []


def test_twelve_commands_with_much_output_each_stay_readable(client: Client) -> None:
    talk = command("sh", "-c", "head -c 1100000 /dev/zero | tr '\\0' '\\1' | fold -w 100")
    job_id = client.submit([talk] * 12)
    lines = sum(hasattr(part, "serial") for part in client.watch(job_id, log=True))
    assert lines > 0
    job = ended(client, job_id)
    assert job.status is SUCCESS
    assert [info.id for info in client.jobs()] == [job_id]
    client.archive(job_id)
    assert client.job(job_id).archived


@pytest.mark.parametrize("pauses", [False, True])
def test_a_job_that_was_stored_larger_than_a_frame_runs_and_can_be_read(
    tmp_path: Path, *, pauses: bool
) -> None:
    with Daemon(tmp_path) as daemon, Client(daemon.data) as client:
        queue = daemon.places.queue
        if pauses:
            uuid = client.add_filter(action="PAUSE", predicates=[["jobid", ["=", "id", 7]]])
        daemon.run("down")
        fields = opcodes.check_opcode(command("true")) | {"comment": "x" * 9 * MEGABYTE}
        ops = [jobs.OpcodeEntry(input=dict(fields)) for _ in range(2)]
        (queue / "job-7").write_bytes(jobs.encode_job(jobs.Job(id=7, ops=ops)))
        daemon.up()
        if pauses:
            assert client.job(7).status is not SUCCESS
            client.delete_filter(uuid)
        assert ended(client, 7).status is SUCCESS
        found = client.job(7)
        assert found.ops is not None
        assert found.ops[0].input["comment"].endswith("characters in all, the rest is cut]")
        assert len((queue / "job-7").read_bytes()) > settings.FRAME_BYTES_MAX
        client.archive(7)
        assert client.job(7).archived


OPCODES = """
import os, sys
from ganger import Opcode

class OpEnd(Opcode, kw_only=True):
    op_id = "OP_END"
    how: str

    def run(self, context):
        print("about to", self.how)
        if self.how == "exit":
            os._exit(7)
        if self.how == "signal":
            os.kill(os.getpid(), 10)
        raise ValueError("no good")
"""


def install(folder: Path, code: str, entries: str) -> None:
    information = folder / "ends-1.dist-info"
    information.mkdir(parents=True)
    (folder / "ends.py").write_text(code)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: ends\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[ganger.opcodes]\n{entries}\n")


def test_an_operation_in_python_returns_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "target", OPCODES, "end = ends:OpEnd\nbroken = ends:OpBroken")
    monkeypatch.setenv("PYTHONPATH", os.fspath(tmp_path / "target"))
    with Daemon(tmp_path) as daemon, Client(daemon.data) as client:
        ids = [client.submit([{"OP_ID": "OP_END", "how": how}]) for how in ("exit", "signal", "x")]
        exited, signaled, failed = client.wait(*ids, timeout=60)
        death = "its process ended without a result"
        assert result(exited).endswith(f"{death} (it exited with code 7)")
        assert result(signaled).endswith(f"{death} (it was ended by SIGUSR1)")
        assert failed.ops is not None
        log = [(line.kind, line.text) for line in failed.ops[0].log]
        assert log[0] == ("stdout", "about to x")
        assert log[1] == ("traceback", "Traceback (most recent call last):")
        assert log[-1] == ("traceback", "ValueError: no good")
        assert not any(b"about to" in path.read_bytes() for path in daemon.data.glob("*.out"))
        [problem] = client.info().opcode_problems
        assert problem.startswith("package ends: opcode 'broken' (ends:OpBroken) cannot be loaded")
        with pytest.raises(BadRequestError) as caught:
            client.submit([{"OP_ID": "OP_BROKEN"}])
        assert caught.value.text.startswith("unknown opcode 'OP_BROKEN'")
        assert caught.value.text.endswith(f"; {problem}")
        assert f"Not loaded: {problem}" in daemon.run("status").stdout


def result(job: JobInfo) -> str:
    assert job.status is ERROR
    assert job.ops is not None
    return str(msgspec.convert(job.ops[0].result, str))
