"""Measures the configuration over the wire, at three sizes: reads and changes of one object."""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.clusters import INSTANCES, sized_configuration, uuid_of

from ganger.storage import config_files
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.disk import paths
from ganger.transport import messages

from .figures import Timings
from .ganger_side import Ganger
from .wire import Wire

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

SIZES = tuple(INSTANCES)
WRITERS = 8

_SPAWN = multiprocessing.get_context("spawn")


class Cluster:
    """A daemon of its own that serves a configuration of this size."""

    def __init__(self, data: Path, size: str) -> None:
        self._data = data
        self._count = INSTANCES[size]
        places = paths.places(data)
        data.mkdir(mode=0o700)
        config_files.write(places.config, sized_configuration(size))
        self.bytes = places.config.stat().st_size
        """Size of ``config.data``."""
        self._ganger = Ganger(data)

    def __enter__(self) -> Self:
        """Start it."""
        self._ganger.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self._ganger.__exit__()

    def reads(self, count: int) -> Timings:
        """Read one instance after the other, by UUID."""
        timings = Timings()
        wire = Wire(self._data)
        for number in range(count):
            wanted = uuid_of("instances", number * 7 % self._count)
            with timings.one():
                found = wire.call(messages.ReadObjects(kind=ObjectKind.INSTANCE, names=[wanted]))
            assert isinstance(found, messages.ObjectsRead), found
        wire.close()
        return timings

    def changes(self, writers: int, seconds: float) -> Changes:
        """Let writers, each a process of its own, change an instance of theirs again and again."""
        results: SimpleQueue[list[float]] = _SPAWN.SimpleQueue()
        start = _SPAWN.Barrier(writers + 1)
        processes = [
            _SPAWN.Process(target=_change, args=(self._data, number, seconds, start, results))
            for number in range(writers)
        ]
        for process in processes:
            process.start()
        start.wait()
        timings = Timings()
        for _ in processes:
            timings.seconds += results.get()
        for process in processes:
            process.join()
        return Changes(timings, len(timings.seconds) / seconds)


class Changes(NamedTuple):
    """The time of each change, and changes per second."""

    timings: Timings
    per_second: float


def _change(
    data: Path, writer: int, seconds: float, start: Barrier, results: SimpleQueue[list[float]]
) -> None:
    timings = Timings()
    wire = Wire(data)
    wire.call(messages.ReadLimits())
    mine = uuid_of("instances", writer)
    start.wait()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        # Another value each time: what is so already is no change.
        values = [(["hvparams", "kernel_args"], f"ro {time.perf_counter_ns()}")]
        with timings.one():
            change = messages.SetValues(kind=ObjectKind.INSTANCE, name=mine, values=values)
            changed = wire.call(change)
        assert isinstance(changed, messages.ObjectsChanged), changed
    wire.close()
    results.put(timings.seconds)
