"""A disk that loses power: what was flushed stays, of everything else any part may.

How it works. A `Disk` is fed the changes that were made to the files below one directory, in
order, and the flushes. It holds what is durable, and what is *pending*: made and not flushed.
`Disk.crash` gives one `Image` of what may be found after a loss of power, chosen by a `Loss`.

What is assumed, and nothing beyond it:

- A flush of a file (fsync, fdatasync) makes its data and size durable, and not its name.
- A flush of a directory makes durable what was done to the names in it, and not the name of
  the directory itself in the directory above it.
- syncfs makes everything durable.
- One change of names (create, rename, exchange, link, unlink) happens entirely or not at all.
- Of the rest any subset survives: changes of names without regard to their order, not even
  within one directory; each write whole, torn at sectors, or not; a file may have grown though
  the data did not get there (zeros then). A sector is old or new, never a mixture.

A flush of a file or of the file system may fail (`FlushFailed`), or the kernel's own writing back,
of which nobody here may hear. Then the pages that it was to write count as clean: the next flush
has nothing to do for them, succeeds, and they are on the disk only by chance. They can be read
until they leave the memory (`Evicted`). What is written into such a block later is not on the disk
either, whatever the flush says, unless the pages have left the memory first: ext4 takes the block
for written, and finds it unwritten when it is read. A descriptor that was open on such a file
reports the failure once, at its own next flush (the recorder sees to that, as Linux does). Names
and sizes go on being pending: a file system that cannot write those stops, rather than forget them.

``names_in_order`` is a weaker disk's promise that one may make, and most file systems with a
journal do: changes of names survive in their order, and every flush takes along all that were
made before it.
"""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

import msgspec

BLOCK = 4096
"""The bytes of a page, and of a block of the file system."""

ROOT = 0
"""The inode of the directory that everything lies below."""


class Named(msgspec.Struct, frozen=True):
    """One change of names: (directory, name, inode or None for nothing), all or none."""

    entries: tuple[tuple[int, str, int | None], ...]
    new_directory: int | None = None


class Written(msgspec.Struct, frozen=True):
    """Data was written into a file."""

    inode: int
    offset: int
    data: bytes


class Resized(msgspec.Struct, frozen=True):
    """A file was cut or made longer with zeros."""

    inode: int
    size: int


class Flushed(msgspec.Struct, frozen=True):
    """A file or directory was flushed; None: the whole file system."""

    inode: int | None


class FlushFailed(msgspec.Struct, frozen=True):
    """A flush of a file, or (None) of the file system, ended in an error."""

    inode: int | None


class Evicted(msgspec.Struct, frozen=True):
    """The pages of a file left the memory: from now on it is what the disk has."""

    inode: int


Change = Named | Written | Resized | Flushed | FlushFailed | Evicted


class _Pending(msgspec.Struct):
    """A change of a file's data, in its place among others: which of them are on the disk."""

    change: Written | Resized
    is_durable: bool = False
    is_forgotten: bool = False
    """A flush of it failed, or one of its block before: no later one writes it."""

    @property
    def blocks(self) -> set[int]:
        """The blocks into which this writes."""
        if isinstance(self.change, Resized):
            return set()
        end = self.change.offset + len(self.change.data)
        return set(range(self.change.offset // BLOCK, -(-end // BLOCK)))


class Loss(msgspec.Struct, frozen=True):
    """How much of what is pending survives: chances from 0 to 1, and the size of a sector.

    ``in_order``: of the names, the first ones survive rather than any.
    """

    names: float
    data: float
    torn: float
    sector: int
    in_order: bool

    @classmethod
    def chosen(cls, dice: random.Random, *, names_in_order: bool = False) -> Loss:
        """One of many kinds of loss, the extreme ones among them often."""
        chances = (0.0, 0.0, 0.1, 0.5, 0.9, 1.0, 1.0)
        return cls(
            names=dice.choice(chances),
            data=dice.choice(chances),
            torn=dice.choice((0.0, 0.3, 1.0)),
            sector=dice.choice((512, 4096)),
            in_order=names_in_order or dice.random() < 0.4,
        )


EVERYTHING = Loss(names=1.0, data=1.0, torn=0.0, sector=4096, in_order=True)
"""Nothing is lost: what an orderly end of the machine leaves."""

NOTHING = Loss(names=0.0, data=0.0, torn=0.0, sector=4096, in_order=True)
"""Everything is lost that was not flushed."""


class Image(msgspec.Struct):
    """What lies on a disk: the names in each directory, and the content of each file."""

    names: dict[int, dict[str, int]]
    contents: dict[int, bytes]

    def tree(self) -> dict[str, bytes | None]:
        """Every path from the root, with its content; None for a directory."""
        found: dict[str, bytes | None] = {}
        waiting = [("", ROOT)]
        while waiting:
            path, directory = waiting.pop()
            for name, inode in self.names[directory].items():
                below = f"{path}/{name}" if path else name
                if inode in self.names:
                    found[below] = None
                    waiting.append((below, inode))
                else:
                    found[below] = self.contents[inode]
        return found

    def materialise(self, folder: Path) -> None:
        """Make ``folder``, with all of this in it; two names of one file are links."""
        paths: dict[int, str] = {}
        waiting = [(os.fspath(folder), ROOT)]
        while waiting:
            path, directory = waiting.pop()
            os.mkdir(path, 0o700)
            for name, inode in self.names[directory].items():
                below = f"{path}/{name}"
                if inode in self.names:
                    waiting.append((below, inode))
                elif inode in paths:
                    os.link(paths[inode], below)
                else:
                    paths[inode] = below
                    descriptor = os.open(below, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                    with open(descriptor, "wb", buffering=0) as file:
                        file.write(self.contents[inode])


class Disk:
    """The durable and the pending, as changes come in."""

    def __init__(self, image: Image | None = None, *, names_in_order: bool = False) -> None:
        start = image or Image({ROOT: {}}, {})
        self._names = {inode: dict(names) for inode, names in start.names.items()}
        self._contents = dict(start.contents)
        self._pending_names: list[Named] = []
        self._pending_data: dict[int, list[_Pending]] = {}
        self._refused: dict[int, set[int]] = {}
        self._names_in_order = names_in_order

    def take(self, change: Change) -> None:
        """The next change."""
        match change:
            case Named():
                self._pending_names.append(change)
            case Written() | Resized():
                self._change_data(change)
            case FlushFailed():
                inodes = [change.inode] if change.inode is not None else [*self._pending_data]
                for inode in inodes:
                    self._forget(inode)
            case Evicted():
                self._evict(change.inode)
            case Flushed(inode=None):
                for inode in list(self._pending_data):
                    self._flush_data(inode)
                self._flush_names([True] * len(self._pending_names))
            case Flushed(inode=int(inode)):
                self._flush_data(inode)
                self._flush_names([self._is_in(named, inode) for named in self._pending_names])

    @property
    def pending(self) -> int:
        """How many changes a loss of power could undo."""
        data = sum(not each.is_durable for each in itertools.chain(*self._pending_data.values()))
        return len(self._pending_names) + data

    def crash(self, dice: random.Random, loss: Loss) -> Image:
        """What is found after the power has come back."""
        names = {inode: dict(entries) for inode, entries in self._names.items()}
        for named in self._surviving_names(dice, loss):
            _rename(names, named)
        contents = dict(self._contents)
        for inode, changes in self._pending_data.items():
            contents[inode] = _survived(contents.get(inode, b""), changes, dice, loss)
        # An inode without any data has an entry too, so that its name can be given back.
        for entries in names.values():
            for inode in entries.values():
                if inode not in names:
                    contents.setdefault(inode, b"")
        return Image(names, contents)

    def _is_in(self, named: Named, inode: int) -> bool:
        return self._names_in_order or any(place == inode for place, _, _ in named.entries)

    def content(self, inode: int) -> bytes:
        """What a file holds when its pages have left the memory, and none of them is dirty."""
        changes = [each.change for each in self._without_forgotten(inode)]
        return _applied(self._contents.get(inode, b""), changes)

    def has_forgotten(self, inode: int) -> bool:
        """Whether a file's pages show what the disk need not have."""
        return any(each.is_forgotten for each in self._pending_data.get(inode, ()))

    @property
    def doubtful(self) -> list[int]:
        """The files of which `has_forgotten` is true."""
        return [inode for inode in self._pending_data if self.has_forgotten(inode)]

    def _change_data(self, change: Written | Resized) -> None:
        refused = self._refused.get(change.inode, set())
        pending = _Pending(change)
        if isinstance(change, Resized):
            refused.difference_update([block for block in refused if block * BLOCK >= change.size])
        elif not refused.isdisjoint(pending.blocks):
            pending.is_forgotten = True
            refused |= pending.blocks
        self._pending_data.setdefault(change.inode, []).append(pending)

    def _forget(self, inode: int) -> None:
        for pending in self._pending_data.get(inode, ()):
            if isinstance(pending.change, Written) and not pending.is_durable:
                pending.is_forgotten = True
                self._refused.setdefault(inode, set()).update(pending.blocks)

    def _evict(self, inode: int) -> None:
        self._pending_data[inode] = self._without_forgotten(inode)
        self._refused.pop(inode, None)

    def _without_forgotten(self, inode: int) -> list[_Pending]:
        """The changes of a file; of those that are forgotten, only that it has grown."""
        found: list[_Pending] = []
        size = len(self._contents.get(inode, b""))
        for pending in self._pending_data.get(inode, ()):
            change = pending.change
            if isinstance(change, Resized):
                size = change.size
            else:
                size = max(size, change.offset + len(change.data))
            found.append(_Pending(Resized(inode, size)) if pending.is_forgotten else pending)
        return found

    def _flush_data(self, inode: int) -> None:
        changes = self._pending_data.get(inode, [])
        for pending in changes:
            pending.is_durable |= not pending.is_forgotten
        if changes and all(pending.is_durable for pending in changes):
            plain = [pending.change for pending in self._pending_data.pop(inode)]
            self._contents[inode] = _applied(self._contents.get(inode, b""), plain)

    def _flush_names(self, are_flushed: list[bool]) -> None:
        """Make these durable, and what was done before to the same names with them."""
        left: list[Named] = []
        flushed: list[Named] = []
        names: set[tuple[int, str]] = set()
        for named, is_flushed in reversed([*zip(self._pending_names, are_flushed, strict=True)]):
            touched = {(directory, name) for directory, name, _ in named.entries}
            if is_flushed or not names.isdisjoint(touched):
                names |= touched
                flushed.append(named)
            else:
                left.append(named)
        for named in reversed(flushed):
            _rename(self._names, named)
        self._pending_names = left[::-1]

    def _surviving_names(self, dice: random.Random, loss: Loss) -> list[Named]:
        pending = self._pending_names
        if not loss.in_order:
            return [named for named in pending if dice.random() < loss.names]
        if loss.names in (0.0, 1.0):
            return pending[: round(len(pending) * loss.names)]
        return pending[: dice.randint(0, len(pending))]


def _rename(names: dict[int, dict[str, int]], named: Named) -> None:
    if named.new_directory is not None:
        names.setdefault(named.new_directory, {})
    for directory, name, inode in named.entries:
        # What lies in a directory whose own name was lost is there, and out of reach.
        entries = names.setdefault(directory, {})
        if inode is None:
            entries.pop(name, None)
        else:
            entries[name] = inode


def _applied(content: bytes, changes: list[Written | Resized]) -> bytes:
    data = bytearray(content)
    for change in changes:
        match change:
            case Written():
                _put(data, change.offset, change.data)
            case Resized():
                _resize(data, change.size)
    return bytes(data)


def _survived(content: bytes, changes: list[_Pending], dice: random.Random, loss: Loss) -> bytes:
    data = bytearray(content)
    for pending in changes:
        change = pending.change
        survives = pending.is_durable or dice.random() < loss.data
        match change:
            case Resized() if survives:
                _resize(data, change.size)
            case Written() if pending.is_durable:
                _put(data, change.offset, change.data)
            case Written() if survives and dice.random() >= loss.torn:
                _put(data, change.offset, change.data)
            case Written() if survives or dice.random() < loss.torn / 2:
                for offset, part in _sectors_of(change, loss.sector):
                    if survives and dice.random() < 0.5:
                        _put(data, offset, part)
                if dice.random() < 0.5:
                    _resize(data, max(len(data), change.offset + len(change.data)))
            case _:
                pass
    return bytes(data)


def _sectors_of(change: Written, sector: int) -> list[tuple[int, bytes]]:
    parts = []
    start, end = change.offset, change.offset + len(change.data)
    while start < end:
        stop = min(end, (start // sector + 1) * sector)
        parts.append((start, change.data[start - change.offset : stop - change.offset]))
        start = stop
    return parts


def _put(data: bytearray, offset: int, part: bytes) -> None:
    _resize(data, max(len(data), offset))
    data[offset : offset + len(part)] = part


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))
