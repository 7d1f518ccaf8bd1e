"""A daemon serves its own user alone; errors for others name the owner of the directory."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.faults.harness import GANGER

OTHER = pwd.getpwnam("nobody")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


@pytest.fixture(name="data")
def directory_of_another_user(tmp_path: Path) -> Path:
    """A data directory as another user's daemon leaves it."""
    data = tmp_path / "data"
    (data / "queue" / "journal").mkdir(parents=True)
    (data / "queue" / "version").write_text("1\n")
    for path in (data, *data.rglob("*")):
        os.chown(path, OTHER.pw_uid, OTHER.pw_gid)
    return data


@pytest.fixture(name="served", scope="module")
def directory_of_a_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a daemon that runs as root; its folder is open, as a test wants it."""
    folder = tmp_path_factory.mktemp("served")
    data = folder / "data"
    assert run(data, "up", "--no-rapi")[0] == 0
    try:
        for path in (folder, *folder.parents[:-2], *data.rglob("*")):
            with suppress(FileNotFoundError):  # The daemon goes on renaming what it writes.
                path.chmod(0o755)
        yield data
    finally:
        run(data, "down")


AS_OTHER = """
import grp, hashlib, importlib, os, pkgutil, pwd, shlex, shutil, sys
import ganger.cli, ganger.storage, ganger.transport, rich.console, rich.table, zmq, zmq.asyncio
for package in (ganger.cli, ganger.storage, ganger.transport):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
os.setgroups([])
os.setresgid(*[{gid}] * 3)
os.setresuid(*[{uid}] * 3)
ganger.cli.main.main(sys.argv[1:])
"""
"""Everything is imported first: another user may not be let into the interpreter's folder."""


def run(data: Path, *words: str, as_other: bool = False) -> tuple[int, str]:
    other = AS_OTHER.format(uid=OTHER.pw_uid, gid=OTHER.pw_gid)
    program = [sys.executable, "-c", other] if as_other else GANGER
    done = subprocess.run(
        [*program, "--data", str(data), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd="/",
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["up"], 1),
        (["daemon"], 1),
        (["fsck", "--repair"], 70),
        (["key", "authorise", "one", "x" * 40], 1),
        (["rapi", "cert"], 1),
        (["rapi", "user", "add", "one", "--role", "read"], 1),
        (["rapi", "user", "remove", "one"], 1),
    ],
)
def test_root_neither_starts_nor_changes_the_directory_of_another_user(
    data: Path, words: list[str], code: int
) -> None:
    before = sorted(data.rglob("*"))
    found, output = run(data, *words)
    assert found == code, output
    assert f"{data}: belongs to nobody (uid {OTHER.pw_uid}), and this is root (uid 0)" in output
    assert f"ganger --data {data} {words[0]}" in output
    assert sorted(data.rglob("*")) == before


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        *((0o700, words) for words in ("status", "down", "up", "job list", "fsck")),
        *((0o755, words) for words in ("status", "job list")),
    ],
)
def test_another_user_gets_the_owner_of_the_directory_or_of_the_daemon(
    served: Path, mode: int, words: str
) -> None:
    served.chmod(mode)
    code, output = run(served, *words.split(), as_other=True)
    assert code not in (0, 3), output
    assert "belongs to root (uid 0), and this is nobody" in output


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_check_by_another_user_knows_nothing_of_the_daemon(served: Path, mode: int) -> None:
    served.chmod(mode)
    code, output = run(served, "status", "--check", as_other=True)
    assert code == 3, output
    assert output.startswith("GANGER UNKNOWN: ")
    assert "belongs to root (uid 0), and this is nobody" in output
    assert output.count("\n") == 1
