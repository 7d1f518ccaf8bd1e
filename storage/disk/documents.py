"""Reads whole files and replaces them atomically, whatever their content.

`replace` writes a temporary file in the same directory and renames it over the old one. With
``flush`` it flushes the data before the rename and the directory after it: the new content
survives a power loss. Without ``flush`` the new content survives the process, but not a power
loss: right where a journal record covers it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import stat
from typing import TYPE_CHECKING

from .. import errors
from . import ownership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

FILE_MODE = 0o640
SECRET_MODE = 0o600
DIRECTORY_MODE = 0o750
TEMPORARY_PREFIX = ".tmp-"
_OWNER_MODE = 0o600
_BLOCK_BYTES = 65_536
_PIECE_BYTES = 256 * 1024

_numbers = itertools.count()

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
_renameat2.argtypes = [
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_uint,
]


def replace(
    path: str | os.PathLike[str],
    data: bytes | bytearray,
    *,
    flush: bool,
    mode: int = FILE_MODE,
    beside: str | None = None,
) -> None:
    """Make ``data`` the content of ``path``, entirely or not at all; `StorageError` if it fails.

    The temporary file lies in ``beside``, on the same file system, or in the same directory.
    """
    directory, name = os.path.split(os.path.abspath(path))
    with storage_errors(path):
        start = f"{beside or directory}/{TEMPORARY_PREFIX}{name}"
        _replace_from(start, path, data, flush=flush, mode=mode)
        if flush:
            flush_directory(directory)


def _replace_from(
    start: str, path: str | os.PathLike[str], data: bytes | bytearray, *, flush: bool, mode: int
) -> None:
    """Write the data into a new file whose name begins with ``start``, and rename it."""
    temporary, descriptor = make_temporary(start, mode)
    try:
        try:
            write_all(descriptor, data)
            if flush:
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def replace_all(
    folder: str | os.PathLike[str],
    contents: Mapping[Path, bytes],
    *,
    mode: int = FILE_MODE,
) -> None:
    """As `replace` with a flush, for several files of one directory, which is flushed once.

    `StorageError` if it fails: then some may be replaced.
    """
    with storage_errors(folder):
        for path, data in contents.items():
            name = os.path.basename(path)
            start = f"{os.fspath(folder)}/{TEMPORARY_PREFIX}{name}"
            with storage_errors(path):
                _replace_from(start, path, data, flush=True, mode=mode)
        flush_directory(folder)


def remove_temporaries(
    folder: str | os.PathLike[str],
    kept: Callable[[str], bool],
    names: Iterable[str] | None = None,
) -> None:
    """Delete the temporary files of unfinished writes, except those that ``kept`` names.

    ``names``: what the directory held, if that is known.
    """
    with storage_errors(folder):
        for name in os.listdir(folder) if names is None else names:
            if name.startswith(TEMPORARY_PREFIX) and not kept(name):
                # A directory of such a name is not ours.
                with contextlib.suppress(IsADirectoryError, FileNotFoundError):
                    os.unlink(f"{os.fspath(folder)}/{name}")


def make_temporary(start: str, mode: int) -> tuple[str, int]:
    """A new file whose name begins with ``start``, and its descriptor."""
    while True:
        temporary = f"{start}.{os.getpid()}.{next(_numbers)}"
        # A killed process that had our pid may have left a file of this name.
        with contextlib.suppress(FileExistsError):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return temporary, os.open(temporary, flags, mode)


def exchange(path: str, data: bytes, spare: str) -> bool:
    """As `replace`, but write into the file ``spare`` and keep the old version there (`inodes`).

    There is no flush: if the disk refused a page of ``spare`` before, ext4 says of the next flush
    that it went well, and the page reads as zeros later. Only a new file can be trusted.

    Returns whether a later write may reuse ``spare``. It may not if ``path`` did not exist (the
    spare became the file), or if ``path`` was no plain file: then ``spare`` holds that now. If a
    new daemon deletes the spare meanwhile, this is a plain `replace`.
    """
    with storage_errors(path):
        descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            write_all(descriptor, data)
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)
        try:
            is_kept = _swap(spare, path)
        except FileNotFoundError:
            replace(path, data, flush=False)
            return False
        return is_kept and _is_writable_again(spare)


def create(path: str, data: bytes) -> bool:
    """Make ``data`` the content of a new file, entirely or not at all, not flushed.

    False: there is something of that name, which stays as it is. `StorageError` if it fails.
    """
    with storage_errors(path):
        directory, name = os.path.split(path)
        temporary, descriptor = make_temporary(f"{directory}/{TEMPORARY_PREFIX}{name}", FILE_MODE)
        try:
            try:
                write_all(descriptor, data)
            finally:
                os.close(descriptor)
            if _rename_new(temporary, path):
                return True
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        os.unlink(temporary)
        return False


def _rename_new(source: str, target: str) -> bool:
    """Rename, unless the target exists."""
    names = (_AT_FDCWD, source.encode(), _AT_FDCWD, target.encode())
    if _renameat2(*names, _RENAME_NOREPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number == errno.EEXIST:
        return False
    if number not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(number, os.strerror(number))
    # The file system knows no such rename.
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    os.unlink(source)
    return True


def _is_writable_again(spare: str) -> bool:
    """Whether we may write into the replaced version; if it is a file that we may not, unlink it.

    To write through a symbolic link would change another file, to open a pipe would block, and a
    file with a second hard link (a backup) must keep its content.
    """
    status = os.lstat(spare)
    if not stat.S_ISREG(status.st_mode):
        return False
    if status.st_nlink == 1 and status.st_mode & _OWNER_MODE == _OWNER_MODE:
        return True
    os.unlink(spare)
    return False


def _swap(spare: str, path: str) -> bool:
    if _renameat2(_AT_FDCWD, spare.encode(), _AT_FDCWD, path.encode(), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number not in (errno.ENOENT, errno.EINVAL, errno.ENOSYS):
        raise OSError(number, os.strerror(number))
    # There is no old version, or the file system cannot exchange: rename over it.
    os.rename(spare, path)
    return False


_READ_BYTES = 16 * 1024
_READ_BYTES_MAX = 1024 * 1024 * 1024
"""No file of ours comes near: what has more would only use up the memory."""


def read(path: str | os.PathLike[str]) -> bytes | None:
    """The content of ``path``; None if there is no such file; `StorageError` if unreadable.

    A dangling link counts as unreadable: a caller that finds nothing there writes over it.
    """
    with storage_errors(path):
        try:
            # Without O_NONBLOCK, opening a FIFO of that name waits for a writer.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            if os.path.islink(path):
                raise
            return None
        try:
            # A file gives less than is asked for only at its end.
            data = os.read(descriptor, _READ_BYTES)
            if len(data) < _READ_BYTES:
                return data
            size = _readable_size(os.fstat(descriptor))
            parts = [data, os.read(descriptor, max(1, size - len(data)) + 1)]
            while parts[-1]:
                parts.append(os.read(descriptor, _BLOCK_BYTES))
        finally:
            os.close(descriptor)
    return b"".join(parts)


def _readable_size(status: os.stat_result) -> int:
    """The size of this file; `OSError` if it may have no end, or too much for the memory."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a plain file")
    if status.st_size > _READ_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return status.st_size


def size(path: str | os.PathLike[str]) -> int:
    """The bytes of the file; 0 if there is none. `StorageError`."""
    with storage_errors(path):
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return 0


def drop_pages(path: str | os.PathLike[str]) -> None:
    """Have the next `read` bring the file from the disk, as far as no write waits for that.

    The kernel begins to read at once. A file that cannot be opened stays as it is.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


def names_in(folder: str | os.PathLike[str]) -> list[str]:
    """The names in a directory, in order; none if there is no such directory."""
    with storage_errors(folder):
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []


def write_all(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of ``data``, in as many system calls as it takes."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])


def write_all_at(descriptor: int, data: bytes, offset: int) -> None:
    """As `write_all`, at this offset of the file."""
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)


def write_parts_at(descriptor: int, parts: Iterable[bytes], offset: int) -> int:
    """As `write_all_at`, one part behind the other; returns the offset of the end."""
    for piece in _pieces(parts):
        write_all_at(descriptor, piece, offset)
        offset += len(piece)
    return offset


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts in pieces for one system call each: a copy of megabytes at once takes long."""
    piece: list[bytes] = []
    size = 0
    for part in parts:
        piece.append(part)
        size += len(part)
        if size >= _PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)


def flush_file(path: str | os.PathLike[str]) -> None:
    """Make the content and the name of a file durable, if it is there; or `StorageError`."""
    with storage_errors(path):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        flush_directory(os.path.dirname(path))


def flush_directory(path: str | os.PathLike[str]) -> None:
    """Make the directory's entries durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_to_append(path: Path) -> int:
    """A descriptor that appends to ``path``, made if it is missing; `StorageError` if it fails."""
    # To open a pipe for writing alone waits for its reader.
    access = os.O_RDWR if path.is_fifo() else os.O_WRONLY
    with storage_errors(path):
        return os.open(path, access | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)


def make_directory(path: str | os.PathLike[str], mode: int = DIRECTORY_MODE) -> None:
    """Create ``path`` and its parents, all with this mode; an existing directory stays as it is."""
    with storage_errors(path):
        _make_directory(os.fspath(path), mode)


def _make_directory(path: str, mode: int) -> None:
    # Not `os.makedirs`: every user could write into the parents that it makes without a umask.
    try:
        os.mkdir(path, mode)
    except FileNotFoundError:
        parent = os.path.dirname(path)
        # In some directories, such as /proc, no process can make any: they say the same.
        if not parent or os.path.isdir(parent):
            raise
        _make_directory(parent, mode)
        _make_directory(path, mode)
    except OSError:
        # Also where a directory that exists lies on a file system that is read-only.
        if not os.path.isdir(path):
            raise


def make_data_directory(path: Path) -> None:
    """Make the data directory if it is missing; `DataDirectoryError` if it cannot be one."""
    require_utf8(path)
    try:
        make_directory(path)
    except errors.StorageError as error:
        raise errors.DataDirectoryError(error.text) from error


def require_utf8(path: Path) -> None:
    """Raise `DataDirectoryError` unless a data directory may be called so."""
    if any("\ud800" <= sign <= "\udfff" for sign in str(path)):
        # Messages carry paths, and hold only UTF-8.
        raise errors.DataDirectoryError(f"{path}: the name of a data directory must be UTF-8")


def make_private_directory(path: Path) -> None:
    """Create ``path`` for this user alone; `NotOwnerError` if it is something else.

    For places where every user may create names, such as a shared memory file system.
    """
    if not os.path.lexists(path):
        make_directory(path, 0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        what = "link" if stat.S_ISLNK(status.st_mode) else "file"
        text = f"{path}: is a {what} of {ownership.user(status.st_uid)}, and no directory"
        raise errors.NotOwnerError(f"{text}; remove it")
    if status.st_uid != os.geteuid():
        text = f"{path}: belongs to {ownership.user(status.st_uid)}"
        raise errors.NotOwnerError(f"{text}; it must be this user's own")
    if status.st_mode & 0o077:
        path.chmod(0o700)


class storage_errors:  # noqa: N801 - used as a function, like those of contextlib
    """Turn an `OSError` into a `StorageError` that names ``path``.

    A class, because every write of every process passes here, and a generator costs much more.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            raise errors.StorageError(ownership.explained(self._path, error)) from error
