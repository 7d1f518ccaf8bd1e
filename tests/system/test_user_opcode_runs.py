"""A user's own opcode, installed beside Ganger, runs in a real job."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.harness import Daemon

from ganger import Client, JobStatus, OpcodeError

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "ganger-example-opcodes"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    # Building writes into the source, which must stay as it is.
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    target = tmp_path / "target"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-index", "--no-deps", "--no-build-isolation"),
            *("--target", os.fspath(target), os.fspath(source)),
        ],
        check=True,
    )
    return target


def test_an_installed_opcode_runs_in_a_process_of_the_full_template(
    tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.fspath(installed))
    file = tmp_path / "file"
    file.write_text("what is checked\n")
    with Daemon(tmp_path) as daemon, Client(daemon.data) as client:
        opcode = {"OP_ID": "OP_FILE_CHECKSUM", "path": os.fspath(file)}
        [job] = client.wait(client.submit(opcode), timeout=30)
        assert job.status is JobStatus.SUCCESS
        # This process has not loaded it, and tells what it does all the same.
        [listed] = client.jobs([job.id])
        assert job.summary == listed.summary == f"FILE_CHECKSUM({file})"
        assert job.ops is not None
        assert hashlib.sha256(file.read_bytes()).hexdigest() in str(job.ops[0].result)
        names = {component.name for component in client.info().components}
        assert "fork_server:full" in names
        with pytest.raises(OpcodeError, match="OP_FILE_CHECKSUM"):
            client.submit({"OP_ID": "OP_FILE_CHECKSUM"})


def test_without_it_the_opcode_is_unknown(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, Client(daemon.data) as client:
        with pytest.raises(OpcodeError, match="unknown opcode 'OP_FILE_CHECKSUM'"):
            client.submit({"OP_ID": "OP_FILE_CHECKSUM", "path": "/x"})
        assert list(client.jobs()) == []
