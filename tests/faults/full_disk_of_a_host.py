"""A host whose disk of 6 MB fills, in a mount namespace of its own: told step by step as JSON.

`test_full_disk_of_a_host` runs this as a program. The master has another disk; the host's is a
memory file system.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.faults.full_disk import VERBOSE, fill, mount
from tests.faults.harness import Daemon, wait_until_true
from tests.system.hosts import Host, free_endpoint, until_there


def main() -> None:
    """Fill the host's disk with a command's output, then from outside; tell what is said."""
    folder = Path(sys.argv[1])
    small = folder / "host"
    small.mkdir()
    mount(small)
    master, host = Daemon(folder / "master", "--no-rapi"), Host(small, "web1")
    master.folder.mkdir()
    told: dict[str, Any] = {}

    def note(name: str, *words: str) -> None:
        done = master.run(*words, check=False)
        told[name] = (done.returncode, done.stdout[-500:] + done.stderr[-500:])

    try:
        master.up()
        host.join(master, free_endpoint())
        with master.client() as client:
            until_there(client, "web1")
            job_id = client.submit(
                {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", VERBOSE], "node": "web1"}
            )
            with host.client() as there:
                wait_until_true(lambda: bool(there.info().output_dropped), "output is dropped")
            note("meanwhile", "exec", "--on", "web1", "echo", "well")
            client.cancel(job_id, kill=True)
            client.wait(job_id, timeout=30.0)
            told["log"] = [entry.text for entry in (client.job(job_id).ops or [])[0].log]
            note("logs", "job", "logs", str(job_id))
            with (small / "other").open("ab", buffering=0) as other:
                fill(other)
                for _ in range(20):
                    note("full", "exec", "--on", "web1", "echo", "never")
                    if told["full"][0]:
                        break
                    fill(other)
            note("state", "node", "list")
            (small / "other").unlink()
            host.run("job", "autoarchive", "all", check=False)
            host.run("job", "purge", "--older-than", "all", check=False)
            note("again", "exec", "--on", "web1", "echo", "well")
            wait_until_true(
                lambda: not [one for one in client.locks() if one.owners and "node" in one.name],
                "the locks are free",
            )
    finally:
        host.__exit__()
        master.__exit__()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
