"""Pages that each fork copies at once, and which of them a job writes."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Callable

import pytest

from ganger.actors.execution import pinned_pages

PAGE = mmap.PAGESIZE
PAGES = 16


class Memory:
    """Some pages of this process's own memory, all written."""

    def __init__(self) -> None:
        self.pages = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))
        self.write(*range(PAGES))

    def write(self, *numbers: int) -> None:
        for number in numbers:
            self.pages[number * PAGE] = 1

    def own(self) -> set[int]:
        """The numbers of the pages that no other process has."""
        found = pinned_pages._own_ranges([(self.start, self.start + PAGES * PAGE)])
        return self.numbers(found)

    def numbers(self, ranges: bytes) -> set[int]:
        found = set()
        for start, size in struct.iter_unpack("@PN", ranges):
            found |= set(range((start - self.start) // PAGE, (start - self.start + size) // PAGE))
        return found & set(range(PAGES))


def in_a_child(look: Callable[[], set[int]]) -> set[int]:
    """What ``look`` finds in a child, before that writes anything."""
    ours, theirs = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(theirs, bytes(look()))
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        found = set(pipe.read())
    os.waitpid(pid, 0)
    return found


@pytest.fixture
def memory() -> Memory:
    ring = pinned_pages._new_ring()
    if ring is None:
        pytest.skip("this system lets nobody make an io_uring")
    os.close(ring)
    return Memory()


def test_a_fork_copies_pinned_pages(memory: Memory) -> None:
    assert in_a_child(memory.own) == set()
    ring = pinned_pages.pin(struct.pack("@PN", memory.start + 3 * PAGE, 2 * PAGE))
    assert ring is not None
    assert in_a_child(memory.own) == {3, 4}
    os.close(ring)


def test_a_sample_finds_the_written_pages(memory: Memory) -> None:
    found = pinned_pages.written_by(lambda: memory.write(2, 3, 9))
    assert memory.numbers(found) == {2, 3, 9}
    # Other pages that a child writes in any case are found too, and all can be pinned.
    ring = pinned_pages.pin(found)
    assert ring is not None
    assert in_a_child(memory.own) == {2, 3, 9}
    os.close(ring)


def test_no_more_pages_than_the_limit(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_pages, "PAGES_MAX", 2)
    assert sorted(memory.own()) == [0, 1]


def test_a_sample_that_fails_finds_nothing() -> None:
    def fail() -> None:
        raise ValueError

    assert pinned_pages.written_by(fail) == b""


def test_nothing_is_pinned_where_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pinned_pages.pin(b"") is None
    monkeypatch.setattr(pinned_pages, "_new_ring", lambda: None)
    assert pinned_pages.pin(struct.pack("@PN", 0, PAGE)) is None
    assert pinned_pages.written_by(lambda: None) == b""


def test_a_range_that_cannot_be_pinned_leaves_no_descriptor(memory: Memory) -> None:
    before = os.listdir("/proc/self/fd")
    assert pinned_pages.pin(struct.pack("@PN", 0, PAGE)) is None
    assert os.listdir("/proc/self/fd") == before
    assert memory.own()
