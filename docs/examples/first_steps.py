"""First steps with the client library. Start a daemon first: `ganger up`.

.venv/bin/python docs/examples/first_steps.py
"""

from __future__ import annotations

import sys

from ganger import Client, DaemonUnreachableError, OpcodeError
from ganger.storage.jobs.job_views import LogLine


def main() -> None:
    """Submit a few jobs, follow them, and look at their results."""
    # Finds the local daemon: that of GANGER_DATA, else of the default data directory.
    with Client() as client:
        print(f"The daemon has pid {client.info().pid}")

        # A job is a list of opcodes, run one after the other. OP_EXEC runs a command, without a
        # shell, while it holds the locks that it names. When submit() returns, the job is on disk.
        backup = client.submit(
            [
                {
                    "OP_ID": "OP_EXEC",
                    "argv": ["sh", "-c", "echo packing; tar -cf /dev/null -C /etc passwd group"],
                    "locks": {"node": {"exclusive": ["node1"]}, "instance": {"shared": ["store"]}},
                    "timeout": 60,
                },
                {"OP_ID": "OP_EXEC", "argv": ["echo", "packed"]},
            ],
            reason="nightly backup",
        )

        # A job may wait for others: `check` starts when the backup has succeeded, and `alarm` only
        # if the check has failed.
        check = client.submit(
            {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", "echo not good >&2; exit 3"]},
            depends=[backup],
        )
        alarm = client.submit(
            {"OP_ID": "OP_EXEC", "argv": ["echo", "the check has failed"]},
            depends=[[check, ["failed"]]],
        )

        # The daemon sends changes of status and lines of output as they happen.
        for part in client.watch(backup, check, alarm):
            if isinstance(part, LogLine):
                print(f"job {part.job_id} {part.kind}: {part.text}")
            else:
                print(f"job {part.job_id} is {part.status}")

        # wait() returns the whole jobs, in the order asked for.
        for job in client.wait(backup, check, alarm, timeout=30):
            assert job.ops is not None
            results = [op.result for op in job.ops]
            print(f"job {job.id}: {job.summary} ended: {job.error or job.outcome}: {results[-1]}")

        # A wrong job is refused at once, in one sentence, and nothing is stored.
        try:
            client.submit({"OP_ID": "OP_EXEC", "argv": "ls -l"})
        except OpcodeError as error:
            print(f"refused: {error.text}")


if __name__ == "__main__":
    try:
        main()
    except DaemonUnreachableError as error:
        sys.exit(f"first_steps: {error.text}")
