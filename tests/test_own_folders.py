"""What a run of the tests leaves behind: nothing."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests import own_folders
from tests.faults.harness import Daemon

from ganger.storage.disk import paths

FAILS = """
import os, tempfile
def test_it(tmp_path):
    print("made", tempfile.mkdtemp(), "and", tmp_path, "end")
    assert "{name}" not in os.environ
"""


def test_temporary_folders_of_this_run_lie_in_one() -> None:
    assert Path(tempfile.gettempdir()).name.startswith(own_folders.PREFIX)


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_run_removes_its_folder_also_when_a_test_fails(
    tmp_path: Path, *, is_failing: bool
) -> None:
    checks = tmp_path / "test_it.py"
    checks.write_text(FAILS.format(name="PATH" if is_failing else "no such"))
    for name in ("killed", "kept"):
        (tmp_path / f"{own_folders.PREFIX}{name}").mkdir()
    lock = own_folders._locked(str(tmp_path / f"{own_folders.PREFIX}kept"))
    assert lock is not None
    code = (
        "import sys, pytest, tempfile; sys.path.insert(0, '.'); from tests import own_folders;"
        f"tempfile.tempdir = {str(tmp_path)!r};"
        "sys.exit(pytest.main([*sys.argv[1:]], plugins=[own_folders.OneFolder()]))"
    )
    words = [sys.executable, "-c", code, "-q", "-s", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*words, "--rootdir", str(tmp_path), str(checks)],
        cwd=Path(__file__).parents[1],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == is_failing, said
    made, own = done.stdout.partition("made ")[2].partition(" end")[0].split(" and ")
    assert Path(made).parent.name.startswith(own_folders.PREFIX)
    assert own.startswith(f"{tmp_path}/pytest-of-")
    assert [*tmp_path.glob(f"{own_folders.PREFIX}*")] == [tmp_path / f"{own_folders.PREFIX}kept"]


def test_the_run_directory_of_a_daemon_that_was_killed_goes(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "one")
    daemon.folder.mkdir()
    daemon.up()
    run = paths.memory_run(daemon.data)
    if run is None:
        pytest.skip("there is no memory file system here")
    daemon.kill()
    assert run.is_dir()
    own_folders.remove_run_directories(tmp_path)
    assert not run.exists()
