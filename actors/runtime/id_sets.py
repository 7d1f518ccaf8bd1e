"""Sets of job ids, in order: small, and with the lowest id at hand. Pure.

Ids grow by one, so those of one set lie close together. A set keeps a bit for each, in blocks: an
id costs an eighth of a byte to some bytes, and to find the lowest one looks at a number for each
thousand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK_BITS = 10
_IN_BLOCK = (1 << _BLOCK_BITS) - 1


class IdSet:
    """A set of ids, which it returns in order."""

    __slots__ = ("_blocks", "_count")

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many ids there are."""
        return self._count

    def __contains__(self, one: int) -> bool:
        """Whether this id is one of them."""
        return bool(self._blocks.get(one >> _BLOCK_BITS, 0) >> (one & _IN_BLOCK) & 1)

    def __iter__(self) -> Iterator[int]:
        """The ids in order; those that come or go meanwhile may be among them or not."""
        for block in sorted(self._blocks):
            base, bits = (block << _BLOCK_BITS) - 1, self._blocks.get(block, 0)
            while bits:
                lowest = bits & -bits
                yield base + lowest.bit_length()
                bits ^= lowest

    def add(self, one: int) -> None:
        """Put an id in."""
        block, bit = one >> _BLOCK_BITS, 1 << (one & _IN_BLOCK)
        known = self._blocks.get(block, 0)
        if not known & bit:
            self._blocks[block] = known | bit
            self._count += 1

    def discard(self, one: int) -> None:
        """Take an id out, if it is there."""
        block, bit = one >> _BLOCK_BITS, 1 << (one & _IN_BLOCK)
        known = self._blocks.get(block, 0)
        if known & bit:
            self._count -= 1
            if known == bit:
                del self._blocks[block]
            else:
                self._blocks[block] = known ^ bit

    def first(self) -> int:
        """The lowest id; the set must not be empty."""
        block = min(self._blocks)
        bits = self._blocks[block]
        return (block << _BLOCK_BITS) + (bits & -bits).bit_length() - 1
