"""Maps from job ids, in order: they grow a little at a time, and take little for each job. Pure.

A dictionary of a hundred thousand jobs takes 52 bytes for each, and grows in one piece: with a
million jobs that took a tenth of a second. Ids grow by one, so those of one map lie close
together, and blocks of 64 places hold them: some 10 bytes for each job where none is missing.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

if TYPE_CHECKING:
    from collections.abc import Iterator

_Value = TypeVar("_Value")
_Other = TypeVar("_Other")

_BLOCK_BITS = 6
_SIZE = 1 << _BLOCK_BITS
_IN_BLOCK = _SIZE - 1


class IdMap(MutableMapping[int, _Value], Generic[_Value]):
    """What belongs to each id, as in a dictionary; None is no value. Iteration is in order."""

    __slots__ = ("_blocks", "_counts", "_size")

    def __init__(self) -> None:
        # Of 512 bytes, the most that the interpreter's own allocator takes: so they lie together.
        self._blocks: dict[int, list[Any]] = {}
        # How many places of each block are taken.
        self._counts: dict[int, int] = {}
        self._size = 0

    def __len__(self) -> int:
        """How many ids there are."""
        return self._size

    def __contains__(self, one: object) -> bool:
        """Whether something belongs to this id."""
        return self.get(cast("int", one)) is not None

    @overload
    def get(self, one: int, default: None = None, /) -> _Value | None: ...
    @overload
    def get(self, one: int, default: _Other, /) -> _Value | _Other: ...
    def get(self, one: int, default: object = None, /) -> object:
        """What belongs to this id."""
        block = self._blocks.get(one >> _BLOCK_BITS)
        if block is None:
            return default
        found: object = block[one & _IN_BLOCK]
        return default if found is None else found

    def take(self, one: int) -> _Value | None:
        """What belonged to this id; nothing does now."""
        found = self.get(one)
        if found is not None:
            del self[one]
        return found

    def __getitem__(self, one: int) -> _Value:
        """As `get`; `KeyError` if nothing does."""
        block = self._blocks.get(one >> _BLOCK_BITS)
        found: _Value | None = None if block is None else block[one & _IN_BLOCK]
        if found is None:
            raise KeyError(one)
        return found

    def __setitem__(self, one: int, value: _Value) -> None:
        """Let this belong to the id, instead of what did."""
        number = one >> _BLOCK_BITS
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = [None] * _SIZE
            self._counts[number] = 0
        place = one & _IN_BLOCK
        if block[place] is None:
            self._counts[number] += 1
            self._size += 1
        block[place] = value

    def __delitem__(self, one: int) -> None:
        """Let nothing belong to the id; `KeyError` if nothing does."""
        number, place = one >> _BLOCK_BITS, one & _IN_BLOCK
        block = self._blocks.get(number)
        if block is None or block[place] is None:
            raise KeyError(one)
        block[place] = None
        self._size -= 1
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._blocks[number], self._counts[number]

    def __iter__(self) -> Iterator[int]:
        """The ids, in order; those that come or go meanwhile may be among them or not."""
        for number in sorted(self._blocks):
            base = number << _BLOCK_BITS
            block = self._blocks.get(number, ())
            yield from (base + place for place in range(len(block)) if block[place] is not None)

    def in_order(self) -> Iterator[_Value]:
        """What belongs to the ids, in their order."""
        for number in sorted(self._blocks):
            yield from (one for one in self._blocks.get(number, ())[:] if one is not None)
