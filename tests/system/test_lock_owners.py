"""Owners of locks that are programs and no jobs, and watching locks, over a running daemon."""

from __future__ import annotations

import threading
import time

import pytest
from tests.faults.harness import Daemon, until
from tests.programs import Program
from tests.system.gates import IN_BOTH_PLACEMENTS, Gate, until_running

from ganger import Client, JobStatus
from ganger.transport.messages import LocksListed

pytestmark = IN_BOTH_PLACEMENTS

NODE = {"node": {"exclusive": ["a"]}}

OWNER = """
import os, sys
from ganger import Client, JobStatus
from ganger.storage.alive import lock_files
from ganger.storage.disk import paths
from ganger.storage import settings
from ganger.storage.locks.locks import Owner
from ganger.transport import messages

places = paths.places(sys.argv[1])
held = lock_files.create(places.lock_files, "program")
owner = Owner("program", held.path, os.getpid())
with Client(places.data) as client:
    tried = client._caller.call(messages.TryLocks(owner, [("node/a", "exclusive")]), 30)
    print(tried.blockers, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_the_locks_of_a_program_are_free_within_a_second_of_its_death(
    daemon: Daemon, client: Client
) -> None:
    with Program(OWNER, daemon.data) as program:
        assert program.line == "[]"
        [_, held] = client.locks()
        assert (held.name, held.mode, held.owners) == ("node/a", "exclusive", ["program"])
        job_id = client.submit(
            {"OP_ID": "OP_EXEC", "argv": ["true"], "locks": {"node": {"exclusive": ["a"]}}}
        )
        until(client, [job_id], JobStatus.WAITING)
        begun = time.monotonic()
        program.end()
        client.wait(job_id, timeout=60)
        assert time.monotonic() - begun < 1.0


def test_a_watcher_learns_of_a_lock_when_a_job_gets_it(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    before = client.watch_locks()
    assert before.rows == []
    found: list[LocksListed] = []
    with daemon.client() as other:
        watching = threading.Thread(
            target=lambda: found.append(other.watch_locks(before.revision, seconds=60.0))
        )
        watching.start()
        job_id = client.submit(gate.job(locks=NODE))
        watching.join(60)
    [after] = found
    assert after.revision > before.revision
    assert {owner for row in after.rows for owner in row.owners} == {str(job_id)}
    until_running(client, job_id)
    gate.let_through()
    client.wait(job_id, timeout=60)
