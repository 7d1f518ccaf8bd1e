"""Root as an ordinary user: without the capabilities that make it overlook modes of files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def modes_obeyed() -> Iterator[None]:
    """This thread may open only what the modes of files allow it; others obey them anyway.

    The capabilities stay permitted, and are taken up again at the end.
    """
    if os.geteuid() != 0:
        yield
        return
    before = _capabilities()
    effective = before[0] & ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH)
    _set_capabilities((effective, *before[1:]))
    try:
        yield
    finally:
        _set_capabilities(before)


_SETS = struct.Struct("<6I")
"""Effective, permitted and inheritable ones: the first 32, then the others."""


def _header() -> bytes:
    return struct.pack("<Ii", _VERSION, 0)


def _capabilities() -> tuple[int, ...]:
    sets = ctypes.create_string_buffer(_SETS.size)
    if _libc.capget(ctypes.create_string_buffer(_header()), sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    return _SETS.unpack(sets.raw)


def _set_capabilities(sets: tuple[int, ...]) -> None:
    header = ctypes.create_string_buffer(_header())
    if _libc.capset(header, ctypes.create_string_buffer(_SETS.pack(*sets), _SETS.size)) != 0:
        raise OSError(ctypes.get_errno(), "capset")
