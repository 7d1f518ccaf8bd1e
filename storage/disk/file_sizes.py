"""Raises the limit on the size of files, which a daemon inherits from who starts it.

Beyond it the system refuses a write for ever, as a full disk does for a while: a job would wait
for its state to be stored, and never end.
"""

from __future__ import annotations

import contextlib
import resource

from .. import errors, settings


def raise_limit() -> None:
    """Raise it for this process and its jobs as far as the system permits.

    Raises `OperatorError` if files may not become as large as a daemon needs.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            soft = hard
    if soft != resource.RLIM_INFINITY and soft < settings.FILE_BYTES_NEEDED:
        raise errors.OperatorError(
            f"files may have {soft:,} bytes at most, and a daemon needs "
            f"{settings.FILE_BYTES_NEEDED:,}; raise the hard limit (`ulimit -Hf`, in blocks of "
            "1,024 bytes, or LimitFSIZE= of the service)"
        )
