"""Takes values out of the JSON of a request, or says what is wrong with them. Pure.

The texts are those of Ganeti's remote API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from .problems import HttpError

_REQUIRED: Final = object()
_KindT = TypeVar("_KindT")


def check_type(value: object, expected: type, what: str) -> None:
    """`HttpError` 400 if the value is not of this type; a bool is no number.

    >>> check_type("x", list, "'predicates' parameter")
    Traceback (most recent call last):
      ...
    ganger.rapi.problems.HttpError: 'predicates' parameter: Type is 'str', but 'list' is expected
    """
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        text = f"{what}: Type is '{type(value).__name__}', but '{expected.__name__}' is expected"
        raise HttpError(400, text)


def check_depth(value: object, depth_max: int, what: str) -> None:
    """`HttpError` 400 if arrays and objects are nested deeper than this.

    The daemon refuses such a value with an error that would look like one of this server.

    >>> check_depth([[], {"a": 1}], 2, "The filter")
    >>> check_depth([{"a": []}], 2, "The filter")
    Traceback (most recent call last):
      ...
    ganger.rapi.problems.HttpError: The filter is nested deeper than 2
    """
    level = _parts([value])
    for _ in range(depth_max):
        level = _parts(
            part for one in level for part in (one.values() if isinstance(one, dict) else one)
        )
    if level:
        raise HttpError(400, f"{what} is nested deeper than {depth_max}")


def _parts(values: Iterable[object]) -> list[Any]:
    """The arrays and objects among these values."""
    return [value for value in values if isinstance(value, list | dict)]


def mapping(body: object) -> dict[str, Any]:
    """The body, which must be an object; `HttpError` 400 if it is missing or something else."""
    if body is msgspec.UNSET:
        raise HttpError(400, "Body contents: Missing, but 'dict' is expected")
    check_type(body, dict, "Body contents")
    assert isinstance(body, dict)
    return body


def optional_mapping(body: object) -> dict[str, Any]:
    """As `mapping`, but nothing, or null, stands for an empty object."""
    return {} if body is msgspec.UNSET or body is None else mapping(body)


def converted(body: object, kind: type[_KindT]) -> _KindT:
    """The body as a value of this type; `HttpError` 400 names what is wrong with it."""
    if body is msgspec.UNSET:
        raise HttpError(400, "The request needs a JSON body")
    if not isinstance(body, Mapping):
        raise HttpError(400, "Expected a JSON object in the body")
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise HttpError(400, f"Invalid body parameters: {error}") from error


def parameter(
    body: Mapping[str, Any],
    name: str,
    expected: type,
    default: Any = _REQUIRED,  # noqa: ANN401 - JSON
) -> Any:  # noqa: ANN401 - JSON
    """One value; ``default`` if it is not given, or null. `HttpError` 400 for another type."""
    value = body.get(name)
    if value is None:
        if default is _REQUIRED:
            raise HttpError(400, f"Required parameter '{name}' is missing")
        return default
    check_type(value, expected, f"'{name}' parameter")
    return value


def refuse_others(body: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    """`HttpError` 400 if the object has other keys than these."""
    for name in body:
        if name not in known:
            text = f"Invalid body parameters: {what} doesn't support the parameter '{name}'"
            raise HttpError(400, text)
