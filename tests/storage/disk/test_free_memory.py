"""Freed memory between blocks that live goes back to the system."""

from __future__ import annotations

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
