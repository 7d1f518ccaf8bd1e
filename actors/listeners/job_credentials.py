"""Which connection speaks for a job: only that of the process that holds its lock file.

So it is for other owners of locks: a program that has a lock file of its own among those of jobs.

A process that lost its daemon introduces itself to the successor (`AttachJob`). The kernel says
which process is at the other end of a local connection, and which one holds a lock file: both
must be the process that `AttachJob` names. From then on the connection speaks for that job alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.alive import lock_files
from ...transport import messages
from ...transport.messages import OWNER_REQUESTS, RunOpcode

if TYPE_CHECKING:
    from pathlib import Path

    from ...storage.locks.locks import Owner
    from ...transport.messages import AttachJob, Message
    from ...transport.zmq.peers import Credentials


class JobCredentials:
    """The connections over which job processes have introduced themselves."""

    def __init__(self, *directories: Path) -> None:
        self._directories = [os.fspath(directory) for directory in directories]
        self._introduced: dict[bytes, AttachJob] = {}
        self._proved: dict[bytes, str] = {}
        """The lock file that the process of a connection was last found to hold."""

    def check(self, peer: bytes, identity: Credentials, message: Message) -> None:
        """Raise `NotAllowedError` unless ``peer`` may say ``message``, one of `JOB_MESSAGES`."""
        if identity.kind != "local":
            raise errors.NotAllowedError("only processes of this machine run jobs")
        if isinstance(message, messages.AttachJob):
            self._check_introduction(identity, message)
            self._introduced[peer] = message
            return
        known = self._introduced.get(peer)
        if known is None and self._is_own_owner(peer, identity, message):
            return
        if known is None or not _is_about(message, known):
            kind = type(message).__name__
            raise errors.NotAllowedError(f"{kind}: only the process of a job may speak for it")

    def _is_own_owner(self, peer: bytes, identity: Credentials, message: Message) -> bool:
        """Whether the message is about locks of the sender's process, which runs no job."""
        if not isinstance(message, OWNER_REQUESTS):
            return False
        owner: Owner = message.owner
        if owner.pid != identity.pid or isinstance(owner.identifier, int):
            return False
        # The owner has the pid of this process: it stays the one that it was. Whether it still
        # holds the file is the lock manager's question.
        if self._proved.get(peer) == owner.lock_file:
            return True
        directory, name = os.path.split(owner.lock_file)
        is_named = directory in self._directories and "\0" not in name
        is_own = is_named and not name.startswith("job_")
        if not is_own or lock_files.holder(owner.lock_file) != identity.pid:
            return False
        self._proved[peer] = owner.lock_file
        return True

    def forget(self, peer: bytes) -> None:
        """The connection has ended."""
        self._introduced.pop(peer, None)
        self._proved.pop(peer, None)

    def _check_introduction(self, identity: Credentials, message: AttachJob) -> None:
        path = message.lock_file
        directory, name = os.path.split(path)
        is_named = directory in self._directories and "\0" not in name
        if not is_named or not name.startswith(f"job_{message.job_id:06d}_"):
            raise errors.NotAllowedError(f"{path[:200]!r} is no lock file of job {message.job_id}")
        if identity.pid != message.process_id or lock_files.holder(path) != identity.pid:
            text = f"process {identity.pid} does not hold the lock file of job {message.job_id}"
            raise errors.NotAllowedError(text)


def _is_about(message: Message, known: AttachJob) -> bool:
    """Whether the message speaks of that job, and of nothing else."""
    if isinstance(message, OWNER_REQUESTS):
        owner: Owner = message.owner
        return owner.identifier == known.job_id and owner.lock_file == known.lock_file
    if isinstance(message, RunOpcode) and message.lock_file != known.lock_file:
        return False
    job_id: int = message.job_id  # type: ignore[attr-defined]
    return job_id == known.job_id
