"""Each page of `docs/how-to` is typed here as it stands, on a daemon of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.harness import Daemon

PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("*.md"))
SECONDS = 200.0
BEFORE = {
    "failed-plan": "ganger job submit - <<'END'\n"
    "jobs:\n"
    "- {name: check, ops: [{OP_ID: OP_EXEC, argv: [sh, -c, "
    "'mkdir /srv/once || exit 0; echo not good; exit 7']}]}\n"
    "- {name: upgrade, after: [check], ops: [{OP_ID: OP_EXEC, argv: ['true']}]}\n"
    "END\n"
    "ganger job wait check || :\n",
    "full-disk": "ganger exec -q -- sh -c 'head -c 2000000 /dev/urandom | base64' > noise\n"
    "ganger exec true\nganger exec true\nganger job archive 1\n",
}
"""What has happened before somebody reads the page."""

SAYS = {
    "failed-plan": ("exit code 7; last line: not good", "failed: job 1"),
    "full-disk": (
        "Job 1 would be purged: 2.",
        "1 job purged; 2.",
        "Job 3 is purged: ",
        "Output: 200.0 MiB of each job, 20.0 GiB in all",
        "Ended jobs are kept for 90d 0h, up to 50.0 GiB",
        "GANGER OK: 0 running",
    ),
    "host-maintenance": ("repairing", "ssh web1 reboot", "that hold goes on"),
    "nightly-backup": ("skipped",),
    "ten-servers": ("upgrade-web10", "web3: apt-get -qy upgrade"),
}
"""What the reader sees at some time."""


@pytest.fixture(name="daemon")
def end_of_the_daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.__exit__()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_works_as_it_is_written(page: Path, daemon: Daemon) -> None:
    ssh = daemon.folder / "ssh"
    ssh.write_text('#!/bin/sh\necho "$1: $2"\n')
    ssh.chmod(0o755)
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    script = "set -e\nganger up --no-rapi\n" + BEFORE.get(page.stem, "") + "".join(blocks)
    for written in ("/srv/", "/etc/ganger/"):
        script = script.replace(written, f"{daemon.folder}/")
    done = subprocess.run(
        ["bash", "-c", script.replace("-- ssh ", f"-- {ssh} ")],
        cwd=daemon.folder,
        env={
            **os.environ,
            "GANGER_DATA": str(daemon.data),
            "GANGER_TEST_FOLDER": str(daemon.folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for text in SAYS[page.stem]:
        assert text in done.stdout
