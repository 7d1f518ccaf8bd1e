"""Sets of job ids, in order: small, and counted without being walked through. Pure.

Ids grow by one, so those of one set lie close together. A set keeps a bit for each, in blocks: an
id costs an eighth of a byte to some bytes, and to count those before another one looks at a block
for each thousand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_BLOCK_BITS = 10
_IN_BLOCK = (1 << _BLOCK_BITS) - 1


class IdSet:
    """A set of ids, which it returns in order."""

    __slots__ = ("_blocks", "_count")

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._count = 0

    @classmethod
    def of(cls, ids: Iterable[int]) -> Self:
        """A set of these ids."""
        found = cls()
        for one in ids:
            found.add(one)
        return found

    def __len__(self) -> int:
        """How many ids there are."""
        return self._count

    def __contains__(self, one: int) -> bool:
        """Whether this id is one of them."""
        return bool(self._blocks.get(one >> _BLOCK_BITS, 0) >> (one & _IN_BLOCK) & 1)

    def __iter__(self) -> Iterator[int]:
        """The ids in order; those that come or go meanwhile may be among them or not."""
        return self.after(-1)

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

    def after(self, one: int) -> Iterator[int]:
        """The ids above this one, in order."""
        first = (one + 1) >> _BLOCK_BITS
        for block in sorted(self._blocks):
            if block >= first:
                bits = self._blocks.get(block, 0)
                if block == first:
                    bits &= -1 << ((one + 1) & _IN_BLOCK)
                yield from _ids(block, bits)

    def common(self, *others: IdSet) -> Iterator[int]:
        """The ids that are in one of the other sets, too, in order."""
        blocks = {block for other in others for block in other._blocks}  # noqa: SLF001 - the same class
        for block in sorted(blocks & self._blocks.keys()):
            either = 0
            for other in others:
                either |= other._blocks.get(block, 0)  # noqa: SLF001 - the same class
            yield from _ids(block, either & self._blocks.get(block, 0))

    def except_for(self, others: IdSet) -> Iterator[int]:
        """The ids that are not in the other set, in order. Both may change meanwhile."""
        theirs = others._blocks
        for block in sorted(self._blocks):
            left = self._blocks.get(block, 0)
            while left := left & ~theirs.get(block, 0):
                lowest = left & -left
                yield (block << _BLOCK_BITS) + lowest.bit_length() - 1
                left ^= lowest

    def shared_with(self, other: IdSet) -> IdSet:
        """A set of the ids that are in both."""
        mine, theirs = self._blocks, other._blocks
        few = min(mine, theirs, key=len)
        return self._made({block: mine.get(block, 0) & theirs.get(block, 0) for block in few})

    def without(self, other: IdSet) -> IdSet:
        """A set of the ids that are not in the other one."""
        blocks, theirs = dict(self._blocks), other._blocks
        for block in blocks.keys() & theirs.keys():
            blocks[block] &= ~theirs[block]
        return self._made(blocks)

    def update(self, other: IdSet) -> None:
        """Put all ids of another set in."""
        blocks = self._blocks
        for block, bits in other._blocks.items():
            known = blocks.get(block, 0)
            blocks[block] = known | bits
            self._count += (bits & ~known).bit_count()

    @classmethod
    def _made(cls, blocks: dict[int, int]) -> Self:
        found = cls()
        found._blocks = {block: bits for block, bits in blocks.items() if bits}
        found._count = sum(bits.bit_count() for bits in found._blocks.values())
        return found

    def count_while(self, holds: Callable[[int], bool]) -> int:
        """How many ids ``holds`` is true of; it must be false of all after the first other one.

        It is asked about few of them.
        """
        blocks = sorted(self._blocks)
        # The last block of which it holds for the first id.
        low, high = 0, len(blocks)
        while low < high:
            middle = (low + high) // 2
            if holds(_lowest(blocks[middle], self._blocks[blocks[middle]])):
                low = middle + 1
            else:
                high = middle
        if not low:
            return 0
        found = list(_ids(blocks[low - 1], self._blocks[blocks[low - 1]]))
        before = sum(self._blocks[block].bit_count() for block in blocks[: low - 1])
        low, high = 1, len(found)
        while low < high:
            middle = (low + high) // 2
            if holds(found[middle]):
                low = middle + 1
            else:
                high = middle
        return before + low


def _lowest(block: int, bits: int) -> int:
    return (block << _BLOCK_BITS) + (bits & -bits).bit_length() - 1


def _ids(block: int, bits: int) -> Iterator[int]:
    base = (block << _BLOCK_BITS) - 1
    while bits:
        lowest = bits & -bits
        yield base + lowest.bit_length()
        bits ^= lowest
