"""The program of a fork server, named by its template in the list of processes."""

from __future__ import annotations

import sys

from . import fork_server


def main() -> None:
    """Run a fork server.

    Arguments: TEMPLATE DESCRIPTOR LOCK_FILE_DIRECTORY DRY_RUN_DIRECTORY FAMILIES
    """
    template, descriptor, lock_files, dry_runs, families = sys.argv[1:]
    fork_server.run(
        template,
        int(descriptor),
        (lock_files, dry_runs),
        families=families.split(),
    )


if __name__ == "__main__":
    main()
