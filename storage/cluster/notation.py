"""The JSON of ``config.data`` to the byte as Ganeti writes it: numbers have Haskell's form."""

from __future__ import annotations

import re
from typing import Any

import msgspec

# Strings, whole numbers and everything between them; then a number with a point or an exponent, or
# the end. It matches everywhere, so a search never begins inside a string; the quantifiers are
# possessive, so no byte is looked at twice.
_NUMBER = re.compile(
    rb'((?:"(?:[^"\\]++|\\.)*+"|[^"\d\-]++|-?\d++(?![.eE\d]))*+)'
    rb"(-?\d++(?:\.\d++)?(?:[eE][+\-]?\d++)?|\Z)",
    re.DOTALL,
)

_PLAIN_MIN, _PLAIN_MAX = 0.1, 1e7
_EXACT_MAX = 2.0**53


def encode(document: dict[str, Any]) -> bytes:
    """The document as JSON without spaces, its fields in their order.

    Seconds since the epoch become ``1.7952254608566072e9``, and 1.0 becomes ``1``: the document
    read back is equal, and so are all numbers.
    """
    return _NUMBER.sub(_rewritten, msgspec.json.encode(document))


def number(value: float) -> str:
    """A finite number as Ganeti writes it.

    >>> number(1795225460.8566072), number(22.5), number(0.05), number(3.0)
    ('1.7952254608566072e9', '22.5', '5.0e-2', '3')
    """
    if value.is_integer() and abs(value) <= _EXACT_MAX:
        return str(int(value))
    if _PLAIN_MIN <= abs(value) < _PLAIN_MAX:
        return repr(value)
    mantissa, _, exponent = repr(value).partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    power = int(exponent or "0") + len(whole) - 1 - leading_zeros
    return f"{sign}{digits[0]}.{digits[1:].rstrip('0') or '0'}e{power}"


def _rewritten(match: re.Match[bytes]) -> bytes:
    before: bytes = match[1]
    found: bytes = match[2]
    return before + number(float(found)).encode() if found else before
