"""A master and a host in network namespaces of their own, whose packets are lost: told as JSON.

`test_cut_host` runs this as a program in namespaces of its own. A pair of virtual interfaces joins
both machines. A route that leads nowhere loses what goes in one direction; an interface that is
down loses all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.faults.harness import Daemon, wait_until_true
from tests.system.hosts import Host, until_there

MASTER, HOST, PORT = "10.9.0.1", "10.9.0.2", 7611
INSIDE = ["ip", "netns", "exec", "host"]
SHORT_SECONDS = 1.5
WITNESS = 'echo x >> "$1"; for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 0.5; done'

CUTS = {
    "both": (["ip", "link", "set", "v-master", "down"], ["ip", "link", "set", "v-master", "up"]),
    "up": (
        [*INSIDE, "ip", "route", "add", "blackhole", f"{MASTER}/32"],
        [*INSIDE, "ip", "route", "del", "blackhole", f"{MASTER}/32"],
    ),
    "down": (
        ["ip", "route", "add", "blackhole", f"{HOST}/32"],
        ["ip", "route", "del", "blackhole", f"{HOST}/32"],
    ),
}


def lay_cable() -> None:
    """Give the host a namespace, and join both."""
    for words in (
        "mount -t tmpfs none /run",
        "ip link set lo up",
        "ip netns add host",
        "ip link add v-master type veth peer name v-host netns host",
        f"ip address add {MASTER}/24 dev v-master",
        "ip link set v-master up",
    ):
        subprocess.run(words.split(), check=True)
    for words in (
        "ip link set lo up",
        f"ip address add {HOST}/24 dev v-host",
        "ip link set v-host up",
    ):
        subprocess.run([*INSIDE, *words.split()], check=True)


class FarHost(Host):
    """A host whose commands run in its own namespace."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self._limited = INSIDE


def main() -> None:
    """Run a command on the host during each cut; tell what it has printed, and how often it ran."""
    folder = Path(sys.argv[1])
    lay_cable()
    (folder / "master").mkdir()
    master, host = Daemon(folder / "master"), FarHost(folder / "host", "web1")
    told: dict[str, Any] = {}
    try:
        master.up()
        endpoint = f"tcp://{MASTER}:{PORT}"
        host.join(master, endpoint)
        with master.client() as client:
            until_there(client, "web1")
            told["address"] = client.nodes().nodes[0].address
            for name, (cut, mend) in CUTS.items():
                witness = folder / name
                argv = ["sh", "-c", WITNESS, "sh", str(witness)]
                job_id = client.submit({"OP_ID": "OP_EXEC", "argv": argv, "node": "web1"})
                wait_until_true(witness.exists, "the command has begun")
                subprocess.run(cut, check=True)
                if name == "both":
                    until_there(client, "web1", is_there=False)
                    told["why"] = master.run("job", "why", str(job_id)).stdout
                else:
                    time.sleep(SHORT_SECONDS)
                subprocess.run(mend, check=True)
                [ended] = client.wait(job_id, timeout=60.0)
                printed = master.run("job", "logs", str(job_id)).stdout.split()
                told[name] = [ended.outcome, printed, witness.read_text().split()]
    finally:
        host.__exit__()
        master.__exit__()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
