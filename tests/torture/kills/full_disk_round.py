"""A round of tasks on hosts whose host has a disk of 6 MB that fills, in namespaces of its own.

`tasks_on_hosts` runs this as a program, and hears as JSON what is wrong. The disk is a memory file
system; the master and the witnesses have another one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.faults.full_disk import mount
from tests.torture.kills.tasks_on_hosts import Hosts


def main() -> None:
    """Play it."""
    folder = Path(sys.argv[1])
    small = folder / "small"
    small.mkdir()
    mount(small)
    hosts = Hosts(folder / "round", small)
    try:
        wrong = hosts.round((folder / "seed").read_text(), "full disk")
    finally:
        hosts.close()
    print(json.dumps({"wrong": wrong}))


if __name__ == "__main__":
    main()
