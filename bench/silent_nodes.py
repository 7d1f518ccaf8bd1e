"""Measures what nodes cost that are connected and silent: simulated ones with the real protocol.

The table of hosts is written before the master starts, as if all had joined, and the master gets
their node objects. Then each calls: with CURVE, its key and a greeting, as `NodeLink` does. From
then on libzmq's heartbeats are all.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import psutil
import zmq

from ganger.storage.access import keys
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.disk import documents, paths
from ganger.storage.nodes import host_table, node_objects
from ganger.transport import frames, messages
from ganger.transport.zmq.sockets import new_key_pair, set_heartbeat

from .figures import heading, row
from .ganger_side import Ganger

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 1_000
CALL_SECONDS = 240.0
"""Hosts that have no answer by then are not waited for; the row says how many there are."""

REST_SECONDS = 10.0
_MIB = 1_048_576


class SilentNodes:
    """Connections of hosts, all of one context of libzmq."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.max_sockets = COUNT + 8
        self._sockets: list[zmq.Socket[bytes]] = []
        self._waiting: dict[zmq.Socket[bytes], bytes] = {}
        self.there = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End all connections."""
        for socket in self._sockets:
            socket.close(linger=0)
        self._context.destroy(linger=0)

    def call(self, host: host_table.HostRecord, pair: keys.KeyPair, server: str) -> None:
        """Connect as this host, and greet the master."""
        socket = self._context.socket(zmq.DEALER)
        socket.curve_serverkey = server.encode()
        socket.curve_publickey, socket.curve_secretkey = pair.public.encode(), pair.secret.encode()
        set_heartbeat(socket)
        socket.connect(self._endpoint)
        live: dict[str, str | int] = {"protocol": messages.NODE_PROTOCOL}
        greeting = messages.GreetMaster(directory=host.directory, run=host.name, live=live)
        socket.send(frames.encode(greeting, 1))
        self._sockets.append(socket)
        self._waiting[socket] = host.name.encode()

    def wait(self) -> None:
        """Take the answers, for a limited time."""
        poller = zmq.Poller()
        for socket in self._waiting:
            poller.register(socket, zmq.POLLIN)
        end = time.monotonic() + CALL_SECONDS
        while self._waiting and time.monotonic() < end:
            for socket, _ in poller.poll(1_000):
                reply = frames.decode(socket.recv(), messages.ToNode).message
                if not isinstance(reply, messages.NodeGreeted):
                    raise TypeError(f"{self._waiting[socket].decode()}: {reply}")
                poller.unregister(socket)
                del self._waiting[socket]
                self.there += 1


def measure(folder: Path, endpoint: str) -> None:
    """Print what the master's processes take with all of them, and without."""
    heading("Silent nodes (simulated, with the real protocol)")
    data = folder / "silent"
    documents.make_data_directory(data)
    places = paths.places(data)
    pair = keys.server_pair(places.hosts.parent, new_key_pair)
    pairs = {f"host{number}": new_key_pair() for number in range(COUNT)}
    hosts = {
        name: host_table.HostRecord(name=name, key=one.public, directory=name, joined=1.0)
        for name, one in pairs.items()
    }
    host_table.write(places.hosts, host_table.HostTable(endpoint=endpoint, hosts=hosts))
    with ExitStack() as stack:
        master = stack.enter_context(Ganger(data))
        _make_objects(master, list(hosts))
        before = _used(master, REST_SECONDS)
        nodes = stack.enter_context(SilentNodes(endpoint))
        begin = time.perf_counter()
        for name, one in pairs.items():
            nodes.call(hosts[name], one, pair.public)
        nodes.wait()
        row(f"{nodes.there} nodes have called after", f"{time.perf_counter() - begin:8.1f} s")
        # What their first calls have begun is over.
        _used(master, REST_SECONDS)
        after = _used(master, REST_SECONDS)
        kept = sum(one.is_there for one in master.client.nodes().nodes)
        row("nodes that are still there at the end", f"{kept:8d}")
    for name, (size, busy) in after.items():
        size_before, busy_before = before[name]
        row(f"{name}, memory", f"{size / _MIB:8.1f} MiB (without nodes {size_before / _MIB:.1f})")
        text = f"{busy:8.2f} % of a processor (without nodes {busy_before:.2f})"
        row(f"{name}, at rest", text)


def _make_objects(master: Ganger, names: list[str]) -> None:
    """Give each host its node object, without which the master sends it away."""
    [cluster] = master.client.objects("cluster")
    group = node_objects.new_group(cluster["uuid"])
    nodes = [node_objects.new_node(cluster["uuid"], name, "", group["uuid"]) for name in names]
    changes = [(ObjectKind.NODE_GROUP, group), *((ObjectKind.NODE, one) for one in nodes)]
    master.client.change_objects(
        *(messages.ObjectChange(kind=kind, uuid=one["uuid"], object=one) for kind, one in changes)
    )


def _used(master: Ganger, seconds: float) -> dict[str, tuple[int, float]]:
    """Proportional memory, and the share of a processor in percent, of the master's processes."""
    daemon = psutil.Process(master.client.info().pid)
    hub = next(one for one in daemon.children() if "authority_process" in " ".join(one.cmdline()))
    found = {"the daemon": daemon, "the hub": hub}
    before = {name: _busy(process) for name, process in found.items()}
    time.sleep(seconds)
    return {
        name: (process.memory_full_info().pss, (_busy(process) - before[name]) * 100 / seconds)
        for name, process in found.items()
    }


def _busy(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
