"""Idempotency keys: which texts may be one. What is repeated under a key is done once."""

from __future__ import annotations

from . import errors, settings, wording


def check(key: str, place: str = "key") -> str:
    """``key`` if requests may have it; else `BadRequestError` that begins with ``place``."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise errors.BadRequestError(f"{place}: holds half of a character pair") from error
    if not 0 < size <= settings.KEY_BYTES_MAX:
        text = f"{place}: expected 1 to {settings.KEY_BYTES_MAX} bytes, got {size}"
        raise errors.BadRequestError(text)
    if wording.has_control(key):
        text = f"{place}: expected no control characters, got {wording.shown(key)}"
        raise errors.BadRequestError(text)
    return key
