"""Regular expressions whose time is linear in the text. The only home of their engine (re2)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, NamedTuple

from ..wording import brief
from .metering import PATTERN_STEPS_SIZE

PATTERN_MEMORY_BYTES_MAX: Final = 1 << 20
"""Memory of one compiled regular expression, its caches included."""

PATTERNS_KEPT_MAX: Final = 1_024
"""Compiled regular expressions that are cached."""


class Pattern(NamedTuple):
    """A compiled regular expression, and the steps that each byte costs."""

    search: Callable[[bytes], object]
    weight: int


@functools.lru_cache(PATTERNS_KEPT_MAX)
def compiled(pattern: str) -> Pattern:
    """The compiled pattern; `ValueError` says what is wrong with it.

    Imports the engine here, because most processes never see a pattern. Pattern and text are
    bytes: for strings the binding also counts characters up to the match, which costs more than a
    short search.
    """
    import re2  # type: ignore[import-untyped]  # noqa: PLC0415

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    try:
        regexp = re2.compile(pattern.encode(), options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        text = f"broken regular expression {brief(pattern)}: {reason}"
        raise ValueError(text) from error
    except UnicodeEncodeError as error:
        raise ValueError("the regular expression is not valid Unicode") from error
    return Pattern(regexp.search, 1 + regexp.programsize // PATTERN_STEPS_SIZE)
