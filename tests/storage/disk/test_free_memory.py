"""Freed memory between blocks that live goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import psutil

from ganger.storage.disk import free_memory


def test_pages_between_blocks_that_live_go_back() -> None:
    process = psutil.Process()
    # Too large for Python's own allocator, too small for a mapping of their own.
    blocks = [bytes(16 * 2**10) for _ in range(3_000)]
    kept = blocks[::10]
    before = process.memory_info().rss
    del blocks
    free_memory.give_back()
    assert before - process.memory_info().rss > 20 * 2**20
    assert len(kept) == 300


_FRAMES_OF_THREADS = """
import sys, threading
import psutil
from ganger.storage.disk import free_memory

if sys.argv[1] == "one":
    free_memory.keep_in_one_place()
together = threading.Barrier(4)

def pass_frames():
    for _ in range(20):
        frame = bytes(2**20 - 64)
        together.wait()
        del frame

before = psutil.Process().memory_info().rss
threads = [threading.Thread(target=pass_frames) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
free_memory.give_back()
print((psutil.Process().memory_info().rss - before) // 2**10)
"""


def test_a_heap_for_all_threads_keeps_nothing_of_what_passed_there() -> None:
    grown = {}
    for heaps in ("one", "many"):
        command = [sys.executable, "-c", _FRAMES_OF_THREADS, heaps]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        grown[heaps] = int(done.stdout)
    assert grown["one"] < 2_048, grown
    assert grown["many"] > grown["one"] + 1_024, grown
