"""Regular expressions whose time is linear in the text. The only home of their engine (re2)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, NamedTuple

from .metering import PATTERN_STEPS_SIZE
from .wording import brief

PATTERN_MEMORY_BYTES_MAX: Final = 1 << 20
"""What one compiled regular expression may take, its caches included."""

PATTERNS_KEPT_MAX: Final = 1_024
"""Compiled regular expressions kept for those that need the same ones again."""


class Pattern(NamedTuple):
    """A compiled regular expression, and what each byte that it looks at costs."""

    search: Callable[[bytes], object]
    weight: int


@functools.lru_cache(PATTERNS_KEPT_MAX)
def compiled(pattern: str) -> Pattern:
    """The pattern, compiled; `ValueError` says why it cannot be.

    The engine is loaded here, when the first pattern is met: most processes never see one.
    Pattern and text go in as bytes, since for strings the binding also counts characters
    to tell where the match is, which costs more than a short search.
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
