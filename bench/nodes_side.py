"""Measures commands on nodes beside the same ones here: latency, rate, output, memory.

All node daemons are on this machine, so that both sides share its processors: a rate over several
nodes is that of a master and its nodes together.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psutil

from ganger import Client
from ganger.storage.disk import paths

from . import silent_nodes, ssh_side
from .figures import Timings, heading, median, row
from .ganger_side import Ganger

NODES = (1, 10, 100)
NODE_BYTES = 60_000_000
"""What a node on this machine takes; where there is no room for so many, there is no such row."""

OUTPUT_BYTES = 200_000_000
JOIN_SECONDS = 60.0
REST_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_MIB = 1_048_576
NOTHING = ["true"]


class Node:
    """A node daemon on this machine."""

    def __init__(self, data: Path, master: Ganger, endpoint: str) -> None:
        self.data = data
        self.name = data.name
        self._master = master
        self._endpoint = endpoint
        self._command = [sys.executable, "-m", "ganger.cli.main", "--data", str(data)]

    def __enter__(self) -> Self:
        """Join, and start the daemon."""
        token = self._master.client.invite_node(
            self.name, endpoint=self._endpoint, announced=[self._endpoint]
        ).token
        self._run("node", "join", token)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self._run("node", "down")
        shutil.rmtree(paths.places(self.data).run, ignore_errors=True)

    def memory(self) -> dict[str, int]:
        """Resident bytes of its processes."""
        with Client(self.data) as client:
            return client.info().memory

    def _run(self, *words: str) -> None:
        subprocess.run([*self._command, *words], check=True, stdout=subprocess.DEVNULL)


def measure(folder: Path, steps: int, jobs: int) -> None:
    """Start a master and nodes, and print the figures."""
    with ExitStack() as stack:
        master = stack.enter_context(Ganger(folder / "nodes-master"))
        endpoint = _free_endpoint()
        nodes: list[Node] = []

        def have(count: int) -> list[str]:
            while len(nodes) < count:
                data = folder / f"web{len(nodes) + 1}"
                nodes.append(stack.enter_context(Node(data, master, endpoint)))
            _until_there(master.client, count)
            return [one.name for one in nodes]

        heading("Command on a node, beside the same one here (interleaved)")
        [first] = have(1)
        _latency(master.client, first, steps // 5)
        _output(master.client, first)
        heading("The same commands over the same loopback, by others")
        port = int(_free_endpoint().rpartition(":")[2])
        ssh_side.measure(folder, port, steps // 5, jobs, _printing())
        heading("Jobs per second on nodes, beside those here (interleaved)")
        for count in NODES:
            if count * NODE_BYTES > psutil.virtual_memory().available:
                row(f"over {count} nodes", "not measured: there is too little memory")
                break
            _rate(master.client, have(count), jobs)
            _fan_out(master.client, have(count))
        heading("Memory for nodes")
        for name, size in nodes[0].memory().items():
            row(f"a node, {name}", f"{size / _MIB:8.1f} MiB")
        row("a node, daemon, shared pages counted in part", f"{_proportional(nodes[0]):8.1f} MiB")
        for name, size in master.client.info().memory.items():
            row(f"the master with {len(nodes)} nodes, {name}", f"{size / _MIB:8.1f} MiB")
        row("a node at rest, wake-ups per second", f"{_wake_ups(nodes[-1]):8.1f}")
    silent_nodes.measure(folder, _free_endpoint())


def _latency(client: Client, node: str, count: int) -> None:
    here, there = Timings(), Timings()
    for _ in range(count):
        _run(client, None, NOTHING, here)
        _run(client, node, NOTHING, there)
    row("here, submit to finished", here)
    row("on a node, submit to finished", there)
    row("ratio, medians", f"{there.milliseconds(0.5) / here.milliseconds(0.5):.2f}")


def _printing() -> list[str]:
    return ["head", "-c", str(OUTPUT_BYTES), "/dev/urandom"]


def _output(client: Client, node: str) -> None:
    words = _printing()
    found = {}
    for name, where in (("here", None), ("through a node", node)):
        timings = Timings()
        for _ in range(3):
            _run(client, where, words, timings)
        found[name] = OUTPUT_BYTES / timings.milliseconds(0.5) / 1000
        row(f"output, {name}", f"{found[name]:8.0f} MB per s")
    timings = Timings()
    for _ in range(3):
        with timings.one(), subprocess.Popen(words, stdout=subprocess.PIPE) as source:
            subprocess.run(["cat"], stdin=source.stdout, stdout=subprocess.DEVNULL, check=True)
    pipe = OUTPUT_BYTES / timings.milliseconds(0.5) / 1000
    row("the same bytes through a pipe", f"{pipe:8.0f} MB per s")
    row("ratio", f"{found['through a node'] / found['here']:.2f}")
    row("ratio to the pipe", f"{found['through a node'] / pipe:.2f}")


def _fan_out(client: Client, nodes: list[str]) -> None:
    """One command on each of these nodes, all at once."""
    timings = Timings()
    for _ in range(3):
        with timings.one():
            ids = client.submit_many([[_opcode(name, NOTHING)] for name in nodes])
            client.wait(*ids, timeout=600)
    row(f"one command on each of {len(nodes)} nodes", timings)


def _rate(client: Client, nodes: list[str], jobs: int) -> None:
    here, there = [], []
    for _ in range(3):
        here.append(_per_second(client, [None], jobs))
        there.append(_per_second(client, nodes, jobs))
    row("here", f"{median(here):8.0f} jobs per s")
    row(f"over {len(nodes)} nodes", f"{median(there):8.0f} jobs per s")
    row("ratio, medians", f"{median(there) / median(here):.2f}")


def _per_second(client: Client, nodes: list[str] | list[None], jobs: int) -> float:
    begin = time.perf_counter()
    names = [nodes[number % len(nodes)] for number in range(jobs)]
    ids = client.submit_many([[_opcode(name, NOTHING)] for name in names])
    client.wait(*ids, timeout=600)
    return jobs / (time.perf_counter() - begin)


def _run(client: Client, node: str | None, words: list[str], timings: Timings) -> None:
    with timings.one():
        client.wait(client.submit(_opcode(node, words)), timeout=600)


def _opcode(node: str | None, words: list[str]) -> dict[str, Any]:
    opcode: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": words}
    return opcode if node is None else opcode | {"node": node}


def _wake_ups(node: Node) -> float:
    """How often the daemon's threads have got a processor, per second, while nobody asks."""
    with Client(node.data) as client:
        process = psutil.Process(client.info().pid)

    def switches() -> int:
        found = 0
        for thread in process.threads():
            status = Path(f"/proc/{process.pid}/task/{thread.id}/status").read_text("ascii")
            found += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        return found

    # What the last tasks have left, such as processes that wait for a job, is gone by then.
    time.sleep(REST_SECONDS)
    before = switches()
    time.sleep(REST_SECONDS)
    return (switches() - before) / REST_SECONDS


def _proportional(node: Node) -> float:
    with Client(node.data) as client:
        process = psutil.Process(client.info().pid)
    return float(process.memory_full_info().pss / _MIB)


def _until_there(client: Client, count: int) -> None:
    end = time.monotonic() + JOIN_SECONDS
    while sum(one.is_there for one in client.nodes().nodes) < count:
        if time.monotonic() > end:
            raise RuntimeError("a node has not called")
        time.sleep(_LOOK_SECONDS)


def _free_endpoint() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"
