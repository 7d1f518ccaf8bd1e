"""The life of a job's process: its lock file, the hand-over, and the job itself."""

from __future__ import annotations

import os
import time

import msgspec

from ...storage import documents, errors, jobs, lock_files, process_identity, settings
from ...storage.locks import Owner
from ...storage.queue_files import job_files
from ...transport import messages
from . import job
from .daemon_link import Link


def run_process(
    job_id: int,
    link: Link,
    lock_directory: str,
    *,
    spare: str,
    identity: process_identity.ProcessIdentity | None = None,
) -> None:
    """Take a lock file, wait for the hand-over, run the job.

    ``spare`` is the path of an unused lock file, if there is one; ``identity`` is this process's.
    """
    stem = lock_files.job_stem(job_id, time.time(), identity or process_identity.own())
    lock_file = lock_files.create(lock_directory, stem, spare=spare)
    pid = os.getpid()
    try:
        hello = messages.JobHello(job_id=job_id, lock_file=lock_file.path, process_id=pid)
        if not link.send(hello, 0):
            return
        go = _wait_for_go(link)
        if go is None:
            return
        attach = messages.AttachJob(job_id=job_id, lock_file=lock_file.path, process_id=pid)
        link.use_socket(go.socket, attach, go.direct)
        if not go.body:
            # Too large for a frame: an older version, or another program, wrote it.
            go = msgspec.structs.replace(go, body=_read_body(go.queue, job_id))
        given = jobs.decode_job(go.body)
        given.process_id = pid
        job.JobActor(given, link, Owner(job_id, lock_file.path, pid), go).run()
    finally:
        lock_file.remove()
        link.close()


def _wait_for_go(link: Link) -> messages.JobGo | None:
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


def _read_body(queue: str, job_id: int) -> bytes:
    body = documents.read(job_files.path(queue, job_id))
    if body is None:
        raise errors.StorageError(f"job {job_id} has no file")
    return body
