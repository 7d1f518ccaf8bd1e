"""The daemon is killed under load, and its directory repaired while jobs go on: all end once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from tests.faults.harness import Daemon, Witnesses

from ganger import JobStatus

if TYPE_CHECKING:
    from pathlib import Path

JOBS = 60


def test_a_repair_between_two_daemons_loses_nothing_and_starts_nothing_twice(
    tmp_path: Path,
) -> None:
    witnesses = Witnesses(tmp_path, JOBS)
    with Daemon(tmp_path) as daemon:
        with daemon.client() as client:
            ids = client.submit_many(witnesses.jobs(seconds=0.1))
            for place in (5, 25, 45):
                client.wait(ids[place], timeout=60)
                daemon.kill()
                looked = daemon.run("fsck", "-o", "json", check=False, text="")
                assert looked.returncode in (0, 1), looked.stderr
                repaired = daemon.run("fsck", "--repair", "-o", "json", text="")
                left = msgspec.json.decode(repaired.stdout)["findings"]
                assert {finding["remedy"] for finding in left} <= {"none"}, left
                daemon.up()
            ended = client.wait(*ids, timeout=60)
            assert {job.status for job in ended} == {JobStatus.SUCCESS}
            assert client.locks() == []
            assert client.info().quarantined == []
        assert set(witnesses.counts().values()) == {1}
        daemon.run("down")
        assert daemon.run("fsck", text="").stdout == f"{JOBS} jobs, 0 archived: clean\n"
