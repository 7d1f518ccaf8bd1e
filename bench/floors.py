"""Measures this machine's disk, kernel and sockets without Ganger."""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING

import zmq

from ganger.storage.disk import documents

from .figures import Timings, heading, row

if TYPE_CHECKING:
    from pathlib import Path

_RECORD = b"x" * 600


def measure(folder: Path, count: int) -> None:
    """Print the floors; ``folder`` lies on the disk that Ganger uses."""
    heading(f"Floors of this machine ({count} each)")
    row("atomic file replace (flush file + directory)", _replace(folder, count))
    row("append 600 bytes + flush", _append(folder, count))
    row("ZeroMQ round trip (ipc, DEALER - ROUTER)", _round_trip(folder, count))
    row("fork + wait, a process with the modules of this one", _fork(count))


def _replace(folder: Path, count: int) -> Timings:
    timings = Timings()
    for _ in range(count):
        with timings.one():
            documents.replace(folder / "replaced", _RECORD, flush=True)
    return timings


def _append(folder: Path, count: int) -> Timings:
    timings = Timings()
    descriptor = os.open(folder / "appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(count):
        with timings.one():
            os.write(descriptor, _RECORD)
            os.fdatasync(descriptor)
    os.close(descriptor)
    return timings


def _round_trip(folder: Path, count: int) -> Timings:
    timings = Timings()
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(f"ipc://{folder}/floor")

    def echo() -> None:
        for _ in range(count):
            router.send_multipart(router.recv_multipart())

    thread = threading.Thread(target=echo)
    thread.start()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(f"ipc://{folder}/floor")
    for _ in range(count):
        with timings.one():
            dealer.send(_RECORD)
            dealer.recv()
    thread.join()
    dealer.close()
    router.close()
    context.term()
    return timings


def _fork(count: int) -> Timings:
    """Time forks of a process that has one thread, and collects no garbage."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        gc.collect()
        gc.freeze()
        timings = Timings()
        for _ in range(count):
            with timings.one():
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)
        os.write(writer, ",".join(f"{one:.9f}" for one in timings.seconds).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    timings = Timings()
    timings.seconds = [float(one) for one in text.split(",")]
    return timings
