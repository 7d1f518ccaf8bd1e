"""The words that errors and commands share: counts, quotes, guesses."""

from __future__ import annotations

import re
import reprlib
import signal
from collections.abc import Iterable

_SHOWN_CHARACTERS_MAX = 60
_LINE_CHARACTERS_MAX = 4_000
_KIB = 1024
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

NOT_STARTED = "command cannot be started: "
"""Begins what is said of a command that the system, or the settings, did not let begin."""


def counted(count: int, noun: str) -> str:
    """The count with its noun, such as ``1 job`` and ``2 jobs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size(count: float) -> str:
    """A number of bytes for people.

    >>> size(1), size(512), size(1536), size(3 * 1024**3)
    ('1 byte', '512 bytes', '1.5 KiB', '3.0 GiB')
    """
    if count < _KIB:
        return counted(int(count), "byte")
    power = min(4, (int(count).bit_length() - 1) // 10)
    return f"{count / _KIB**power:.1f} {' KMGT'[power]}iB"


def indexed(part: float) -> str:
    """How far the index of the archive is.

    >>> indexed(0.349)
    'index of the archive: 34 %'
    """
    return f"index of the archive: {int(100 * part)} %"


def unindexed(part: float) -> str:
    """What a search lacks while the index of the archive is built."""
    return f"archived jobs are left out that are not found yet ({indexed(part)})"


def text_of(value: object) -> str:
    """``str`` of a value of users' code: if that fails, a text that says so; always valid UTF-8."""
    try:
        text = str(value)
    except BaseException as error:  # noqa: BLE001 - users' code may raise anything
        text = f"<{type(value).__name__}, whose text fails: {type(error).__name__}>"
    return text.encode("utf-8", "backslashreplace").decode()


def signal_name(number: int) -> str:
    """The name of a signal, such as ``SIGTERM``; ``signal 99`` if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def likeness(word: str, known: Iterable[str], rest: str = "") -> str:
    """`` (did you mean X?)`` if ``word`` is close to one of ``known``, else an empty text.

    ``rest``: what stands behind the word.
    """
    if len(word) > _SHOWN_CHARACTERS_MAX:
        return ""
    # Imported only for a mistake.
    from difflib import get_close_matches  # noqa: PLC0415

    close = get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}{rest}?)" if close else ""


def shown(text: str) -> str:
    """The text in quotes, cut to a length that fits a sentence."""
    # Cut first: quoting a huge text costs time and memory.
    return shortened(repr(text[: _SHOWN_CHARACTERS_MAX + 1]))


def brief(raw: object) -> str:
    """Any value from outside as an error text shows it, cut to a length that fits a sentence."""
    return _SHORT.repr(raw)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHOWN_CHARACTERS_MAX


def shortened(text: str) -> str:
    """The text, cut to a length that fits a sentence."""
    if len(text) <= _SHOWN_CHARACTERS_MAX:
        return text
    return text[: _SHOWN_CHARACTERS_MAX - 3] + "..."


def has_control(text: str) -> bool:
    """Whether a control character, or a break of lines, is in the text: names have none.

    >>> has_control("n7" + chr(27)), has_control("n 7")
    (True, False)
    """
    return _CONTROL.search(text) is not None


def one_line(text: str) -> str:
    """The text as one printable line of a bounded length, for errors that repeat what was sent.

    >>> one_line("no field 'a" + chr(10) + "b'")
    "no field 'a b'"
    """
    if len(text) > _LINE_CHARACTERS_MAX:
        text = f"{text[:_LINE_CHARACTERS_MAX]}..."
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(sign: str) -> str:
    return sign if sign.isprintable() else " "


def type_name(value: object) -> str:
    """The name of the value's type, as users know it."""
    return "null" if value is None else type(value).__name__
