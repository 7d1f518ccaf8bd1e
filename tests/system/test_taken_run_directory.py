"""Somebody else has made the name of the run directory on the memory file system first."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.faults.harness import Daemon

from ganger.storage.disk import paths
from ganger.storage.jobs.job_views import StatusChange


@pytest.fixture(name="taken")
def name_of_the_run_directory(tmp_path: Path) -> Path:
    usual = paths.memory_run(tmp_path / "data")
    if usual is None:
        pytest.skip("this machine has no memory file system")
    return usual


def take(usual: Path, kind: str) -> None:
    if kind == "file":
        usual.write_text("mine")
        return
    usual.mkdir()
    if os.geteuid() == 0:
        os.chown(usual, 1, 1)
    else:
        pytest.skip("only root can act as other users")


@pytest.mark.parametrize("kind", ["file", "directory of another user"])
def test_the_daemon_starts_and_serves_from_its_data_directory(
    tmp_path: Path, taken: Path, kind: str
) -> None:
    take(taken, kind)
    try:
        with Daemon(tmp_path) as daemon:
            assert daemon.places.run == tmp_path / "data/run"
            told = json.loads((tmp_path / "data/daemon.json").read_text())
            assert str(daemon.places.socket) in json.dumps(told)
            with daemon.client() as client:
                job_id = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]})
                [job] = client.wait(job_id)
                assert str(job.status) == "success"
            log = (tmp_path / "data/daemon.log").read_text()
            assert "the run directory's usual name is taken" in log
            assert str(taken) in log
            # Nobody is misled by the name when it is free again.
            shutil.rmtree(taken) if taken.is_dir() else taken.unlink()
            assert daemon.run("status").stdout.startswith("Daemon:")
            daemon.run("down")
            assert not (tmp_path / "data/run").exists()
            daemon.up()
            assert taken.is_socket() or taken.is_dir()
            daemon.run("down")
    finally:
        shutil.rmtree(taken) if taken.is_dir() else taken.unlink(missing_ok=True)


def test_a_long_path_of_the_data_directory_is_no_hindrance(tmp_path: Path) -> None:
    """Beside it, a socket's path would be too long: the daemon takes a name that nobody knows."""
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    usual = paths.memory_run(folder / "data")
    if usual is None:
        pytest.skip("this machine has no memory file system")
    take(usual, "file")
    link = folder / "data/run"
    try:
        with Daemon(folder) as daemon:
            made = paths.places(daemon.data).run
            assert made.parent == usual.parent
            assert made != usual
            assert link.readlink() == made
            with daemon.client() as client:
                job_id = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]})
                assert str(client.wait(job_id)[0].status) == "success"
            daemon.kill()
            assert str(link) not in daemon.run("fsck", check=False).stdout
            daemon.up()
            assert paths.places(daemon.data).run == made
            assert daemon.run("status").stdout.startswith("Daemon:")
            daemon.run("down")
            assert not made.exists()
            assert not link.is_symlink()
    finally:
        usual.unlink()


def test_the_name_stays_taken_by_us_while_jobs_run_without_a_daemon(
    tmp_path: Path, taken: Path
) -> None:
    """They look there for the next daemon."""
    with Daemon(tmp_path) as daemon:
        if daemon.places.run != taken:
            pytest.skip("this machine has no memory file system")
        with daemon.client() as client:
            job_id = client.submit({"OP_ID": "OP_EXEC", "argv": ["sleep", "60"]})
            for change in client.watch(job_id):
                if isinstance(change, StatusChange) and str(change.status) == "running":
                    break
        daemon.run("down")
        assert taken.is_dir()
        daemon.up()
        with daemon.client() as client:
            assert client.cancel(job_id, kill=True).accepted
            assert client.wait(job_id)[0].is_final
        daemon.run("down")
        assert not taken.exists()
