"""Only the process that holds a job's lock file speaks for the job at the ZeroMQ listener."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.actors.processes.lock_owner import HOLD
from tests.programs import Program

from ganger.actors.listeners.job_credentials import JobCredentials
from ganger.storage import errors
from ganger.storage.alive import lock_files, process_identity
from ganger.storage.locks.locks import Owner
from ganger.transport import messages
from ganger.transport.messages import AttachJob, JobLogAppended, Message
from ganger.transport.zmq.peers import Credentials

PEER, OTHER_PEER = b"L1", b"L2"


def here() -> Credentials:
    return Credentials(kind="local", uid=os.geteuid(), pid=os.getpid())


@pytest.fixture
def own(tmp_path: Path) -> Iterator[lock_files.LockFile]:
    """A lock file of job 7 that this process holds."""
    held = lock_files.create(tmp_path, lock_files.job_stem(7, 1.0, process_identity.own()))
    yield held
    held.remove()


def attach(path: str, job_id: int = 7, pid: int | None = None) -> AttachJob:
    return AttachJob(job_id=job_id, lock_file=path, process_id=pid or os.getpid())


def log_appended(job_id: int = 7) -> JobLogAppended:
    return JobLogAppended(job_id=job_id, op_index=0, entries=[])


def running(path: str, job_id: int = 7) -> messages.RunOpcode:
    return messages.RunOpcode(
        job_id=job_id, op_index=0, opcode={}, new_uuid="u", locks={}, since=1, lock_file=path
    )


def preparing(job_id: int = 7) -> messages.PrepareOpcode:
    return messages.PrepareOpcode(job_id=job_id, op_index=0, opcode={}, new_uuid="u")


def refused(
    credentials: JobCredentials,
    message: Message,
    who: Credentials | None = None,
    peer: bytes = PEER,
) -> str:
    with pytest.raises(errors.NotAllowedError) as caught:
        credentials.check(peer, who or here(), message)
    return caught.value.text


def test_the_holder_of_the_lock_file_speaks_for_its_job_and_no_other(
    own: lock_files.LockFile, tmp_path: Path
) -> None:
    credentials = JobCredentials(tmp_path)
    credentials.check(PEER, here(), attach(own.path))
    for said in (
        log_appended(),
        preparing(),
        running(own.path),
        messages.ReleaseLocks(owner=Owner(7, own.path, os.getpid())),
        messages.RequestLocks(owner=Owner(7, own.path, os.getpid()), priority=0, changes=[]),
    ):
        credentials.check(PEER, here(), said)
    for said in (
        log_appended(8),
        preparing(8),
        running(own.path, 8),
        running(own.path + "x"),
        messages.ReleaseLocks(owner=Owner(8, own.path, os.getpid())),
        messages.ReleaseLocks(owner=Owner(7, own.path + "x", os.getpid())),
    ):
        assert "only the process of a job may speak for it" in refused(credentials, said)
    # Neither does another connection, nor the same one after its end.
    assert refused(credentials, log_appended(), peer=OTHER_PEER) == refused(
        credentials, log_appended(8)
    )
    credentials.forget(PEER)
    assert refused(credentials, log_appended())


def test_a_process_cannot_attach_with_what_is_not_its_own(
    own: lock_files.LockFile, tmp_path: Path
) -> None:
    credentials = JobCredentials(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    wrong_places = (
        attach(own.path, job_id=8),
        attach(str(elsewhere / Path(own.path).name)),
        attach(own.path + "\0"),
        attach("x" * 10_000),
        attach(f"{tmp_path}/job_000007_/../{Path(own.path).name}"),
    )
    for message in wrong_places:
        assert "is no lock file of job" in refused(credentials, message)
        assert len(refused(credentials, message)) < 300
    stranger = Credentials(kind="local", uid=os.geteuid(), pid=os.getpid() + 1)
    assert "does not hold the lock file" in refused(credentials, attach(own.path), stranger)
    assert "does not hold the lock file" in refused(
        credentials, attach(own.path, pid=os.getpid() + 1)
    )
    unknown = Credentials(kind="local", uid=os.geteuid(), pid=None)
    assert "does not hold the lock file" in refused(credentials, attach(own.path), unknown)
    remote = Credentials(kind="remote", key="x" * 40)
    assert "only processes of this machine" in refused(credentials, attach(own.path), remote)
    assert refused(credentials, log_appended())


def test_a_lock_file_of_another_process_introduces_only_that_process(tmp_path: Path) -> None:
    with Program(HOLD.replace("job_B", "job_000007_1"), tmp_path) as holder:
        path = holder.line
        credentials = JobCredentials(tmp_path)
        assert "does not hold" in refused(credentials, attach(path))
        itself = Credentials(kind="local", uid=os.geteuid(), pid=holder.pid)
        credentials.check(PEER, itself, attach(path, pid=holder.pid))
    # It has ended: no process holds the file any more.
    assert "does not hold" in refused(credentials, attach(path, pid=holder.pid), itself)


def test_a_program_speaks_for_the_owner_whose_lock_file_it_holds(tmp_path: Path) -> None:
    credentials = JobCredentials(tmp_path)
    held = lock_files.create(tmp_path, "luxid")
    own = Owner("luxid", held.path, os.getpid())
    for said in (messages.TryLocks(own, []), messages.ReleaseLocks(own), messages.ReadOwner(own)):
        credentials.check(PEER, here(), said)
    others = [
        Owner(7, held.path, os.getpid()),
        Owner("luxid", held.path, os.getpid() + 1),
        Owner("luxid", f"{tmp_path}/other", os.getpid()),
        Owner("luxid", f"{tmp_path}/../{tmp_path.name}/luxid", os.getpid()),
        Owner("luxid", held.path + "\0", os.getpid()),
    ]
    for other in others:
        assert "TryLocks: only" in refused(credentials, messages.TryLocks(other, []))
    assert "JobLogAppended" in refused(credentials, log_appended())
    remote = Credentials(kind="remote", uid=here().uid, pid=os.getpid())
    assert refused(credentials, messages.TryLocks(own, []), who=remote)
    # Whoever has proved itself may go on, if only to free its locks; another one may not begin.
    held.remove()
    credentials.check(PEER, here(), messages.ReleaseLocks(own))
    assert "TryLocks: only" in refused(credentials, messages.TryLocks(own, []), peer=OTHER_PEER)
    credentials.forget(PEER)
    assert "TryLocks: only" in refused(credentials, messages.TryLocks(own, []))


def test_a_lock_file_of_a_job_makes_no_other_owner(
    own: lock_files.LockFile, tmp_path: Path
) -> None:
    said = messages.TryLocks(Owner("luxid", own.path, os.getpid()), [])
    assert "TryLocks: only" in refused(JobCredentials(tmp_path), said)
