"""The daemon dies between the flush of an opcode's change and the answer to its job."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.faults.harness import Daemon, wait_for_end
from tests.system.gates import end

from ganger import Client, JobStatus
from ganger.storage import config_files
from ganger.storage.alive import process_identity

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def tag(verb: str) -> dict[str, Any]:
    return {"OP_ID": f"OP_TAGS_{verb}", "kind": "cluster", "tags": ["a"]}


def die_at_history(daemon: Daemon, pid: int) -> subprocess.Popen[str]:
    """Let the daemon be killed when it opens the history: after a flush, before its reply."""
    path = str(daemon.places.config_history)
    fault = ["-P", path, "-e", "trace=openat", "-e", "inject=openat:signal=SIGKILL:when=1"]
    command = ["strace", "-f", "-o", "/dev/null", *fault, "-p", str(pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    assert "attached" in tracer.stderr.readline()
    return tracer


def test_an_opcode_whose_change_was_flushed_is_answered_and_not_run_again(tmp_path: Path) -> None:
    with Daemon(tmp_path, placement="together") as daemon:
        with daemon.client() as client:
            first = client.submit(tag("SET"))
            assert end(client, first) == {first: JobStatus.SUCCESS}
            pid = client.info().pid
            end_of_daemon = process_identity.open_pidfd(pid)
            with die_at_history(daemon, pid):
                job_id = client.submit(tag("DEL"))
                wait_for_end(end_of_daemon)
        changed = config_files.read(daemon.places.config)
        assert changed is not None
        assert changed["cluster"]["tags"] == []
        daemon.up()
        with Client(daemon.data) as successor:
            # Run again, it would find no tag to remove.
            assert end(successor, job_id) == {job_id: JobStatus.SUCCESS}
            found = [entry.who for entry in successor.config_history(count=9)]
        assert found == [f"job {job_id}", f"job {first}"]
