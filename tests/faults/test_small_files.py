"""A daemon whose starter may write small files only: jobs must still end."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

from tests.faults.harness import Daemon

from ganger.storage.jobs.jobs import JobStatus

BLOCK = 8_192


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    """Processes that start meanwhile may write files of a block, until they raise the limit."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BLOCK, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_job_that_stores_more_than_the_limit_of_who_started_the_daemon_ends(
    tmp_path: Path,
) -> None:
    with contextlib.ExitStack() as stack:
        with small_files():
            daemon = stack.enter_context(Daemon(tmp_path))
        client = stack.enter_context(daemon.client())
        text = "x" * 4 * BLOCK
        argv = ["sh", "-c", f"printf {text}"]
        [job] = client.wait(client.submit({"OP_ID": "OP_EXEC", "argv": argv}), timeout=60)
    assert job.status is JobStatus.SUCCESS
