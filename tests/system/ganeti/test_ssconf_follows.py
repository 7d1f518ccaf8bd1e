"""The ssconf files of a running daemon follow the configuration, through its death as well."""

from __future__ import annotations

import time

from tests.faults.harness import Daemon
from tests.system.gates import IN_BOTH_PLACEMENTS

from ganger import Client

pytestmark = IN_BOTH_PLACEMENTS

PATIENCE_SECONDS = 30.0


def until_file_is(daemon: Daemon, name: str, text: str) -> None:
    """Wait until the file says this: the store writes it some time after the answer."""
    path = daemon.places.ssconf / f"ssconf_{name}"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (path.exists() and path.read_text() == text):
        assert time.monotonic() < deadline, path.read_text() if path.exists() else "missing"
        time.sleep(0.01)


def test_files_follow_changes_and_a_killed_daemons_successor_mends_them(daemon: Daemon) -> None:
    with Client(daemon.data) as client:
        until_file_is(daemon, "cluster_name", "ganger\n")
        client.set_values("cluster", "", {"tags": ["web", "db"]})
        until_file_is(daemon, "cluster_tags", "db\nweb\n")
        daemon.kill()
        path = daemon.places.ssconf / "ssconf_cluster_tags"
        path.unlink()
        path.write_text("old\n")
        assert "ssconf_cluster_tags" in daemon.run("fsck", check=False).stdout
        daemon.up()
        until_file_is(daemon, "cluster_tags", "db\nweb\n")
    daemon.run("down")
    assert daemon.run("fsck").stdout.endswith("clean\n")
    daemon.up()
