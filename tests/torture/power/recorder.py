"""Writes down what is done to the files below a directory, while it is really done.

How it works. The functions of `os` and the two system calls that storage makes through
ctypes are replaced by ones that do the same and note it as changes for a `Disk`. Flushes are
noted and not carried out: the directory lies in memory. The campaign can put events of
its own between the changes: what was acknowledged, which operation began.

`Recorder.check` compares what was noted with what lies there: a call that was not seen would
make every crash made from the record worthless.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.torture.power.disk import (
    EVERYTHING,
    ROOT,
    Change,
    Disk,
    Evicted,
    Flushed,
    FlushFailed,
    Image,
    Named,
    Resized,
    Written,
)

from ganger.storage.disk import documents
from ganger.storage.log import cut

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2


class Mark(msgspec.Struct, frozen=True):
    """Something that the changes before it must be compared with."""

    event: Any


Entry = Change | Mark


class Recorder:
    """The record of one directory, from the image that it was made from."""

    def __init__(self, root: Path, image: Image | None = None) -> None:
        self.entries: list[Entry] = []
        self.start = image or Image({ROOT: {}}, {})
        self.before_change: Callable[[], None] = lambda: None
        """Called before every change, in the thread that makes it."""
        self.is_flush_refused: Callable[[int | None], bool] = lambda _: False
        """Whether the flush that is being made, of an inode or of all, fails (`FlushFailed`)."""
        self._root = os.fspath(root)
        self._names = {inode: dict(names) for inode, names in self.start.names.items()}
        self._sizes = {inode: len(data) for inode, data in self.start.contents.items()}
        self._last_inode = max([*self._names, *self._sizes])
        self._descriptors: dict[int, list[int]] = {}
        self._appending: set[int] = set()
        self._dirty: set[int] = set()
        # Each open descriptor reports once the data that another flush could not write.
        self._to_be_told: set[int] = set()
        self._files_to_be_told: list[list[int]] = []
        self._disk = Disk(self.start)
        self._brought_up = 0
        self._real = SimpleNamespace(**{name: getattr(os, name) for name in _REPLACED})
        self._real_exchange = documents._renameat2

    def happened(self, event: object) -> None:
        """Note an event."""
        self.entries.append(Mark(event))

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replace the calls until ``patch`` is undone."""
        for name in _REPLACED:
            patch.setattr(os, name, getattr(self, f"_{name}"))
        patch.setattr(documents, "_renameat2", self._exchange)
        patch.setattr(cut, "_libc", SimpleNamespace(syncfs=self._syncfs))

    def check(self) -> None:
        """Raise `AssertionError` unless the record leads to what lies in the directory."""
        disk = Disk(self.start)
        for entry in self.entries:
            if not isinstance(entry, Mark):
                disk.take(entry)
        noted = disk.crash(random.Random(0), EVERYTHING).tree()
        found: dict[str, bytes | None] = {}
        for folder, folders, files in os.walk(self._root):
            where = os.path.relpath(folder, self._root)
            for name in folders:
                found[os.path.normpath(f"{where}/{name}")] = None
            for name in files:
                found[os.path.normpath(f"{where}/{name}")] = Path(folder, name).read_bytes()
        different = [path for path in {*noted, *found} if noted.get(path, 0) != found.get(path, 0)]
        assert not different, f"the record does not lead to what is there: {sorted(different)}"

    # ------------------------------------------------------------ what the kernel does by itself

    def refuse_writing_back(self) -> None:
        """The disk refuses all that the kernel brings it now, and another program hears of it.

        Those that have a file open hear of it too, at their next flush; nobody else does.
        """
        self._files_to_be_told = list(self._descriptors.values())
        self._fail_flush(None)

    def evict_all(self) -> None:
        """The kernel wants the memory: clean pages go, and are read from the disk again."""
        doubtful = set(self._current_disk().doubtful)
        for folder, _, files in os.walk(self._root):
            for name in files:
                place = self._place(f"{folder}/{name}")
                inode = None if place is None else self._inode(place)
                if inode in doubtful:
                    self._evict(inode, f"{folder}/{name}")

    def _current_disk(self) -> Disk:
        for entry in self.entries[self._brought_up :]:
            if not isinstance(entry, Mark):
                self._disk.take(entry)
        self._brought_up = len(self.entries)
        return self._disk

    def _evict(self, inode: int, path: str) -> None:
        disk = self._current_disk()
        if inode in self._dirty or not disk.has_forgotten(inode):
            return
        content = disk.content(inode)
        descriptor = self._real.open(path, os.O_WRONLY)
        self._real.pwrite(descriptor, content, 0)
        self._real.close(descriptor)
        self.entries.append(Evicted(inode))

    def _posix_fadvise(self, descriptor: int, offset: int, length: int, advice: int) -> None:
        assert (offset, length) == (0, 0)
        if advice == os.POSIX_FADV_DONTNEED and descriptor in self._descriptors:
            self._evict(self._descriptors[descriptor][0], f"/proc/self/fd/{descriptor}")

    # ------------------------------------------------------------ where things are

    def _place(self, path: str | os.PathLike[str]) -> tuple[int, str] | None:
        """The directory and the name in it; None if that is none of ours."""
        absolute = os.path.abspath(path)
        if not absolute.startswith(self._root + "/"):
            return None
        directory = ROOT
        *parents, name = absolute[len(self._root) + 1 :].split("/")
        for parent in parents:
            found = self._names[directory].get(parent)
            if found is None or found not in self._names:
                return None
            directory = found
        return directory, name

    def _inode(self, place: tuple[int, str]) -> int | None:
        return self._names[place[0]].get(place[1])

    def _new_inode(self) -> int:
        self._last_inode += 1
        return self._last_inode

    def _name(self, *entries: tuple[int, str, int | None], directory: int | None = None) -> None:
        for place, name, inode in entries:
            if inode is None:
                del self._names[place][name]
            else:
                self._names[place][name] = inode
        if directory is not None:
            self._names[directory] = {}
        self.entries.append(Named(entries, directory))

    # ------------------------------------------------------------ names

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        assert dir_fd is None
        place = self._place(path)
        if place is not None and flags & os.O_CREAT and self._inode(place) is None:
            self.before_change()
        descriptor: int = self._real.open(path, flags, mode)
        if place is not None:
            inode = self._inode(place)
            if inode is None:
                inode = self._new_inode()
                self._sizes[inode] = 0
                self._name((*place, inode))
            self._descriptors[descriptor] = [inode, 0]
            assert not flags & os.O_TRUNC
            if flags & os.O_APPEND:
                self._appending.add(descriptor)
        elif os.path.abspath(path) == self._root:
            self._descriptors[descriptor] = [ROOT, 0]
        return descriptor

    def _close(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)
        self._appending.discard(descriptor)
        self._to_be_told.discard(descriptor)
        self._real.close(descriptor)

    def _dup(self, descriptor: int) -> int:
        other: int = self._real.dup(descriptor)
        if descriptor in self._descriptors:
            self._descriptors[other] = self._descriptors[descriptor]
        return other

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        assert dir_fd is None
        self._real.mkdir(path, mode)
        if (place := self._place(path)) is not None:
            inode = self._new_inode()
            self._name((*place, inode), directory=inode)

    def _rename(self, source: Any, target: Any) -> None:
        places = self._place(source), self._place(target)
        self._before(*places)
        self._real.rename(source, target)
        match places:
            case (from_directory, from_name), (to_directory, to_name):
                inode = self._names[from_directory][from_name]
                gone = (from_directory, from_name, None)
                self._name(gone, (to_directory, to_name, inode))
            case None, None:
                pass
            case _:
                raise AssertionError(f"renamed across the border: {source} {target}")

    _replace = _rename

    def _link(self, source: Any, target: Any) -> None:
        places = self._place(source), self._place(target)
        self._before(*places)
        self._real.link(source, target)
        if places[0] is not None and places[1] is not None:
            self._name((*places[1], self._inode(places[0])))

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._take_name(self._real.unlink, path, dir_fd)

    _remove = _unlink

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._take_name(self._real.rmdir, path, dir_fd)

    def _take_name(self, call: Any, path: Any, dir_fd: int | None) -> None:
        place = self._place(path) if dir_fd is None else None
        self._before(place)
        call(path, dir_fd=dir_fd)
        if place is not None:
            self._name((*place, None))

    def _exchange(self, _one: int, source: bytes, _two: int, target: bytes, flags: int) -> int:
        places = self._place(source.decode()), self._place(target.decode())
        self._before(*places)
        result: int = self._real_exchange(_one, source, _two, target, flags)
        if result == 0 and places[0] is not None and places[1] is not None:
            if flags == _RENAME_NOREPLACE:
                self._name((*places[0], None), (*places[1], self._inode(places[0])))
                return result
            assert flags == _RENAME_EXCHANGE
            first, second = self._inode(places[0]), self._inode(places[1])
            self._name((*places[0], second), (*places[1], first))
        return result

    # ------------------------------------------------------------ data

    def _write(self, descriptor: int, data: bytes) -> int:
        known = self._descriptors.get(descriptor)
        if known is None:
            result: int = self._real.write(descriptor, data)
            return result
        self.before_change()
        count: int = self._real.write(descriptor, data)
        if descriptor in self._appending:
            known[1] = self._sizes[known[0]]
        self._note_write(known[0], known[1], data[:count])
        known[1] += count
        return count

    def _pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        self.before_change()
        count: int = self._real.pwrite(descriptor, data, offset)
        if descriptor in self._descriptors:
            self._note_write(self._descriptors[descriptor][0], offset, data[:count])
        return count

    def _note_write(self, inode: int, offset: int, data: bytes) -> None:
        self._sizes[inode] = max(self._sizes[inode], offset + len(data))
        self._dirty.add(inode)
        self.entries.append(Written(inode, offset, bytes(data)))

    def _lseek(self, descriptor: int, position: int, how: int) -> int:
        result: int = self._real.lseek(descriptor, position, how)
        if descriptor in self._descriptors:
            self._descriptors[descriptor][1] = result
        return result

    def _ftruncate(self, descriptor: int, length: int) -> None:
        self.before_change()
        self._real.ftruncate(descriptor, length)
        if descriptor in self._descriptors:
            inode = self._descriptors[descriptor][0]
            # A call that changes nothing leaves nothing to be lost.
            if self._sizes[inode] != length:
                self._sizes[inode] = length
                self.entries.append(Resized(inode, length))

    def _posix_fallocate(self, descriptor: int, offset: int, length: int) -> None:
        self.before_change()
        self._real.posix_fallocate(descriptor, offset, length)
        if descriptor in self._descriptors:
            inode = self._descriptors[descriptor][0]
            if self._sizes[inode] < offset + length:
                self._sizes[inode] = offset + length
                self.entries.append(Resized(inode, offset + length))

    # ------------------------------------------------------------ flushes

    def _fsync(self, descriptor: int) -> None:
        if descriptor not in self._descriptors:
            self._real.fsync(descriptor)
            return
        self.before_change()
        inode = self._descriptors[descriptor][0]
        is_told = descriptor in self._to_be_told
        if self.is_flush_refused(inode) or is_told:
            if inode not in self._names:
                self._fail_flush(inode)
            self._to_be_told.discard(descriptor)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._dirty.discard(inode)
        self.entries.append(Flushed(inode))

    _fdatasync = _fsync

    def _syncfs(self, descriptor: int) -> int:
        assert descriptor in self._descriptors
        self.before_change()
        told = self._descriptors[descriptor]
        is_told = any(told is one for one in self._files_to_be_told)
        self._files_to_be_told = [one for one in self._files_to_be_told if one is not told]
        if self.is_flush_refused(None) or is_told:
            self._fail_flush(None)
            ctypes.set_errno(errno.EIO)
            return -1
        self._dirty.clear()
        self.entries.append(Flushed(None))
        return 0

    def _fail_flush(self, inode: int | None) -> None:
        failed = self._dirty if inode is None else self._dirty & {inode}
        self._to_be_told |= {
            descriptor for descriptor, (open_inode, _) in self._descriptors.items()
            if open_inode in failed
        }  # fmt: skip
        self._dirty -= failed
        self.entries.append(FlushFailed(inode))

    def _before(self, *places: tuple[int, str] | None) -> None:
        if any(place is not None for place in places):
            self.before_change()


_REPLACED = (
    "open", "close", "dup", "mkdir", "rename", "replace", "link", "unlink", "remove", "rmdir",
    "write", "pwrite", "lseek", "ftruncate", "posix_fallocate", "posix_fadvise", "fsync",
    "fdatasync",
)  # fmt: skip
