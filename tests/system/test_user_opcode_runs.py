"""A user's own opcode, installed beside Ganger, runs in a real job."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.clusters import made_configuration, uuid_of
from tests.faults.harness import Daemon, until

from ganger import Client, JobStatus, OpcodeError
from ganger.storage import config_files

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


def test_it_takes_the_lock_of_the_node_that_it_names_as_ganetis_opcodes_do(
    tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.fspath(installed))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "data").mkdir()
    config_files.write(
        tmp_path / "data/config.data", made_configuration(nodes=2, instances=0, groups=1)
    )
    with Daemon(tmp_path) as daemon, Client(daemon.data) as client:
        fields = {"path": os.fspath(pipe), "node": "node1.example.com"}
        job_id = client.submit({"OP_ID": "OP_FILE_CHECKSUM", **fields})
        until(client, [job_id], JobStatus.RUNNING)
        held = [row.name for row in client.locks() if row.owners and row.name.startswith("node/")]
        assert held == [f"node/{uuid_of('nodes', 1)}"]
        pipe.write_text("what is checked")
        [job] = client.wait(job_id, timeout=30)
        assert job.status is JobStatus.SUCCESS


def test_without_it_the_opcode_is_unknown(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, Client(daemon.data) as client:
        with pytest.raises(OpcodeError, match="unknown opcode 'OP_FILE_CHECKSUM'"):
            client.submit({"OP_ID": "OP_FILE_CHECKSUM", "path": "/x"})
        assert list(client.jobs()) == []
