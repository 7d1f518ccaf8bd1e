"""The life of a job's process: its lock file, the hand-over, the job itself, and the next one.

A process that has ended a job well, and is as it was before its first one, gives the lock file up
and waits for another job (docs/decisions/processes-serve-more-than-one-job.md).
"""

from __future__ import annotations

import contextlib
import os
import time

import msgspec

from ...storage import errors, settings
from ...storage.alive import lock_files, process_identity
from ...storage.alive.lock_files import LockFile
from ...storage.alive.process_identity import ProcessIdentity
from ...storage.disk import documents
from ...storage.jobs import jobs
from ...storage.locks.locks import Owner
from ...storage.queue_files import job_files
from ...transport import messages
from ..processes import descendants, own_state
from . import job
from .daemon_link import DaemonLink


def run_process(
    job_id: int,
    link: DaemonLink,
    lock_directory: str,
    *,
    spare: str,
    identity: ProcessIdentity | None = None,
) -> None:
    """Take a lock file, wait for the hand-over, run the job; and so on with each further job.

    ``spare`` is the path of an unused lock file, if there is one; ``identity`` is this process's.
    """
    process = _JobProcess(link, lock_directory, spare, identity or process_identity.own())
    try:
        next_id: int | None = job_id
        while next_id is not None and process.serve(next_id):
            next_id = _wait_for_next(link)
            if next_id is not None:
                process.show(next_id)
    finally:
        link.close()


class _JobProcess:
    """This process, over all its jobs."""

    def __init__(
        self, link: DaemonLink, lock_directory: str, spare: str, identity: ProcessIdentity
    ) -> None:
        self._link = link
        self._lock_directory = lock_directory
        self._spare = spare
        self._identity = identity
        self._clean: own_state.OwnState | None = None
        """Its state before the first job that lets another one follow."""

    def show(self, job_id: int) -> None:
        """Say that this process serves a further job. Raises `OSError`."""
        assert self._clean is not None
        process_identity.show_job(job_id)
        self._clean["name"] = process_identity.shown_name(job_id)

    def serve(self, job_id: int) -> bool:
        """Run the job; True if this process is free for another one."""
        link = self._link
        stem = lock_files.job_stem(job_id, time.time(), self._identity)
        lock_file = lock_files.create(self._lock_directory, stem, spare=self._spare)
        pid = os.getpid()
        try:
            hello = messages.JobHello(job_id=job_id, lock_file=lock_file.path, process_id=pid)
            if not link.send(hello, 0):
                return False
            go = _wait_for_go(link)
            if go is None:
                return False
            attach = messages.AttachJob(job_id=job_id, lock_file=lock_file.path, process_id=pid)
            link.use_socket(go.socket, attach, go.direct)
            if not go.body:
                # Too large for a frame: an older version, or another program, wrote it.
                go = msgspec.structs.replace(go, body=_read_body(go.queue, job_id))
            given = jobs.decode_job(go.body)
            given.process_id = pid
            return self._run(given, Owner(job_id, lock_file.path, pid), go, lock_file)
        finally:
            lock_file.remove()

    def _run(self, given: jobs.Job, owner: Owner, go: messages.JobGo, lock_file: LockFile) -> bool:
        if not (go.reuses and self._notes_state(lock_file)):
            job.JobActor(given, self._link, owner, go).run()
            return False
        actor = job.JobActor(given, self._link, owner, go, lambda: self._give_up(lock_file))
        is_free = actor.run()
        actor.close()
        return is_free

    def _notes_state(self, lock_file: LockFile) -> bool:
        if self._clean is None:
            with contextlib.suppress(OSError):
                self._clean = own_state.take(without=lock_file.descriptor)
        return self._clean is not None

    def _give_up(self, lock_file: LockFile) -> str | None:
        """Leave the job, if this process is as it was before its first one; else why not."""
        assert self._clean is not None
        self._link.leave_job()
        try:
            if descendants.has_children():
                return "a process that it started is left"
            now = own_state.take(without=lock_file.descriptor)
            if (changed := own_state.difference(self._clean, now)) is not None:
                return changed
            # First, while the lock still proves that the job has an owner.
            process_identity.show_job(None)
        except OSError as error:
            return str(error)
        lock_file.remove()
        return None


def _wait_for_go(link: DaemonLink) -> messages.JobGo | None:
    deadline = time.monotonic() + settings.HAND_OVER_SECONDS
    while link.is_up and (left := deadline - time.monotonic()) > 0:
        link.wait({}, left)
        received = link.receive()
        for place, one in enumerate(received):
            if isinstance(one.message, messages.JobGo):
                # Right behind it may stand that the rules changed, or that the job is canceled.
                link.put_back(received[place + 1 :])
                return one.message
    return None


def _wait_for_next(link: DaemonLink) -> int | None:
    """The next job; None when the channel was closed. What was said about earlier ones is over."""
    while link.is_up:
        link.wait({}, None)
        for received in link.receive():
            if isinstance(received.message, messages.NextJob):
                return received.message.job_id
    return None


def _read_body(queue: str, job_id: int) -> bytes:
    body = documents.read(job_files.path(queue, job_id))
    if body is None:
        raise errors.StorageError(f"job {job_id} has no file")
    return body
