"""Another version takes over while jobs run, wait and are pending: nothing is lost or repeated.

The queue need not be empty for it. The other version is a copy of this one that says so.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.harness import Daemon, process_of, until, wait_for_end

from ganger import Client, JobStatus
from ganger.storage.alive import process_identity
from ganger.storage.version import version

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
LATER = "99.0.0"


def make_later_version(folder: Path) -> Path:
    """A copy of the package with another version in its source; what PYTHONPATH must name."""
    package = folder / "later" / "ganger"
    # Every folder of the package, which .typing links to.
    links = ROOT / ".typing" / "ganger"
    shutil.copytree(links, package, ignore=shutil.ignore_patterns("__pycache__"))
    source = package / "storage" / "version.py"
    text = source.read_text()
    assert text.count('metadata.version("ganger")') == 1
    source.write_text(text.replace('metadata.version("ganger")', f'"{LATER}"'))
    return package.parent


class WorkAcrossVersions:
    """Jobs that leave a line in a file of their own when they run, and end when they may."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def gated(self, name: str, **fields: Any) -> dict[str, Any]:
        """Runs until `let` is called."""
        os.mkfifo(self._folder / f"gate-{name}")
        command = f"echo ran >> {self._folder}/ran-{name}; exec cat {self._folder}/gate-{name}"
        return {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", command], **fields}

    def short(self, name: str, **fields: Any) -> dict[str, Any]:
        command = f"echo ran >> {self._folder}/ran-{name}"
        return {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", command], **fields}

    def let(self, name: str) -> None:
        (self._folder / f"gate-{name}").write_text("go\n")

    def runs(self) -> dict[str, int]:
        return {
            path.name.removeprefix("ran-"): len(path.read_text().splitlines())
            for path in sorted(self._folder.glob("ran-*"))
        }


def exclusive(lock: str) -> dict[str, Any]:
    return {"node": {"exclusive": [lock]}}


def statuses(client: Client, *ids: int) -> list[str]:
    return [str(client.job(job_id).status) for job_id in ids]


def test_a_later_version_takes_over_a_queue_full_of_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, work = make_later_version(tmp_path), WorkAcrossVersions(tmp_path)
    with Daemon(tmp_path) as daemon:
        with daemon.client() as client:
            assert client.info().version == version()
            done = client.submit(work.short("done"))
            holds = client.submit(work.gated("holds", locks=exclusive("n1")))
            ends = client.submit(work.gated("ends"))
            until(client, ends, JobStatus.RUNNING)
            until(client, holds, JobStatus.RUNNING)
            waits = client.submit(work.short("waits", locks=exclusive("n1")))
            until(client, waits, JobStatus.WAITING)
            several = client.submit(
                [work.gated("first"), work.short("second", locks=exclusive("n1"))]
            )
            until(client, several, JobStatus.RUNNING)
            pending = client.submit(work.short("pending"), depends=[(holds, ["success"])])
            client.wait(done, timeout=30)
            process_id = process_of(client, ends)
        output = daemon.run("down", text="").stdout
        assert output == "The daemon has stopped; 3 running jobs go on\n"
        descriptor = process_identity.open_pidfd(process_id)
        work.let("ends")
        wait_for_end(descriptor)
        # Living processes are no damage, and neither is what they wrote meanwhile.
        for option in ((), ("--repair",)):
            assert daemon.run("fsck", *option, text="").stdout == "6 jobs, 0 archived: clean\n"

        monkeypatch.setenv("PYTHONPATH", str(later))
        daemon.up()
        with daemon.client() as client:
            assert client.info().version == LATER
            assert client.info().quarantined == []
            assert statuses(client, done, ends, holds, waits, several, pending) == [
                *("success", "success", "running", "waiting", "running", "waiting"),
            ]
            new = client.submit(work.short("new", locks=exclusive("n1")))
            assert new == pending + 1
            work.let("first")
            work.let("holds")
            everything = (done, ends, holds, waits, several, pending, new)
            ended = client.wait(*everything, timeout=60)
            assert {job.status for job in ended} == {JobStatus.SUCCESS}
            assert client.locks() == []
        names = ("done", "ends", "first", "holds", "new", "pending", "second", "waits")
        assert work.runs() == dict.fromkeys(names, 1)


def test_an_earlier_version_of_the_same_format_takes_over_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, work = make_later_version(tmp_path), WorkAcrossVersions(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(later))
    with Daemon(tmp_path) as daemon:
        with daemon.client() as client:
            assert client.info().version == LATER
            holds = client.submit(work.gated("holds", locks=exclusive("n1")))
            until(client, holds, JobStatus.RUNNING)
            waits = client.submit(work.short("waits", locks=exclusive("n1")))
            until(client, waits, JobStatus.WAITING)
        daemon.run("down")
        monkeypatch.delenv("PYTHONPATH")
        daemon.up()
        with daemon.client() as client:
            assert client.info().version == version()
            assert statuses(client, holds, waits) == ["running", "waiting"]
            work.let("holds")
            ended = client.wait(holds, waits, timeout=60)
            assert {job.status for job in ended} == {JobStatus.SUCCESS}
        assert work.runs() == {"holds": 1, "waits": 1}


def make_earlier_version(folder: Path) -> Path:
    """A copy of the package that has its lock files where Ganger 1.1 had them, with its names."""
    package = make_later_version(folder) / "ganger" / "storage"
    for name, now, then in (
        ("disk/paths.py", 'return self.data / "livelocks"', 'return self.run / "livelocks"'),
        ("alive/lock_files.py", "{int(now)}_{identity}", "{int(now)}_{os.urandom(4).hex()}"),
    ):
        text = (package / name).read_text()
        assert text.count(now) == 1
        (package / name).write_text(text.replace(now, then))
    return package.parents[1]


def test_jobs_whose_lock_files_lie_where_they_used_to_are_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, work = make_earlier_version(tmp_path), WorkAcrossVersions(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(earlier))
    with Daemon(tmp_path) as daemon:
        with daemon.client() as client:
            holds = client.submit(work.gated("holds", locks=exclusive("n1")))
            dies = client.submit(work.gated("dies", locks=exclusive("n2")))
            until(client, holds, JobStatus.RUNNING)
            until(client, dies, JobStatus.RUNNING)
            waits = client.submit(work.short("waits", locks=exclusive("n1")))
            until(client, waits, JobStatus.WAITING)
            process_ids = [process_of(client, each) for each in (dies, holds, waits)]
        processes = [process_identity.open_pidfd(process_id) for process_id in process_ids]
        assert len(list(daemon.places.former_lock_files.glob("job_*"))) == 3
        assert not daemon.places.lock_files.exists()
        daemon.run("down")
        monkeypatch.delenv("PYTHONPATH")
        assert daemon.run("fsck").stdout == "3 jobs, 0 archived: clean\n"
        daemon.up()
        with daemon.client() as client:
            assert statuses(client, holds, dies, waits) == ["running", "running", "waiting"]
            os.kill(process_ids[0], signal.SIGKILL)
            [dead] = client.wait(dies, timeout=30)
            assert dead.status is JobStatus.ERROR
            work.let("holds")
            # Only the new daemon, which has let it in, can give the lock to the one that waits.
            ended = client.wait(holds, waits, timeout=60)
            assert {job.status for job in ended} == {JobStatus.SUCCESS}
            assert client.locks() == []
        assert work.runs() == {"dies": 1, "holds": 1, "waits": 1}
        for process in processes:
            wait_for_end(process)
        assert list(daemon.places.former_lock_files.glob("job_*")) == []
