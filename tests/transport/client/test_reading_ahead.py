"""Pages of a job's output that are on their way at once."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import settings
from ganger.storage.queue_files.output_blocks import Packer, Segment
from ganger.transport.client.reading_ahead import PAGES_AHEAD, ReadingAhead
from ganger.transport.messages import OutputPage, ReadOutput

PAGE = settings.OUTPUT_PAGE_BYTES


def stored(size: int, seed: int) -> tuple[bytes, bytes]:
    """Output that nothing shortens, and its file."""
    chance, packer = random.Random(seed), Packer()
    output, file = b"", b""
    while len(output) < size:
        piece = chance.randbytes(chance.randint(1, 200_000))
        file += packer.pack(0, [Segment(1, piece)], len(file))
        output += piece
    return output, file


def page_of(file: bytes, request: ReadOutput) -> OutputPage:
    return OutputPage(data=file[request.offset : request.offset + PAGE], size=len(file))


def read(reading: ReadingAhead, file: bytes, chance: random.Random) -> tuple[bytes, int]:
    """All of the output while pages come in any order, and how many were on their way at most."""
    output, most, on_way = b"", 0, reading.requests()
    while not reading.has_all:
        most = max(most, len(on_way))
        request = on_way.pop(chance.randrange(len(on_way)))
        chunks = reading.take(request.offset, page_of(file, request))
        output += b"".join(one.data for one in chunks)
        on_way += reading.requests()
    assert not on_way
    return output, most


@given(st.integers(0, 9 * PAGE), st.integers(0, 1000))
def test_output_comes_once_whole_and_in_order_whatever_page_comes_first(
    size: int, seed: int
) -> None:
    output, file = stored(size, seed)
    reading, chance = ReadingAhead(1), random.Random(seed)
    [first] = reading.requests()
    assert first.wait_seconds == settings.OUTPUT_WAIT_SECONDS_MAX
    half = file[: len(file) // 2]
    begin = b"".join(one.data for one in reading.take(0, page_of(half, first)))
    reading.requests()
    reading.end()
    rest, most = read(reading, file, chance)
    assert begin + rest == output
    assert most <= PAGES_AHEAD


def test_several_pages_are_on_their_way() -> None:
    output, file = stored(8 * PAGE, 1)
    reading = ReadingAhead(1)
    [first] = reading.requests()
    begin = b"".join(one.data for one in reading.take(0, page_of(file, first)))
    ahead = reading.requests()
    assert [one.offset for one in ahead] == [PAGE * number for number in range(1, PAGES_AHEAD + 1)]
    assert {one.wait_seconds for one in ahead} == {0.0}
    reading.end()
    rest, most = read(reading, file, random.Random(1))
    assert (begin + rest == output, most) == (True, PAGES_AHEAD)


def test_half_a_block_at_the_end_is_not_waited_for() -> None:
    output, file = stored(PAGE, 3)
    reading = ReadingAhead(1)
    reading.end()
    found, _ = read(reading, file[:-5], random.Random(3))
    assert len(found) < len(output)
    assert output.startswith(found)
