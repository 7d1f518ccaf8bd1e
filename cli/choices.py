"""Options that several commands share, and the values they take."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import click

from ..storage import errors, plain_values, settings
from ..storage.jobs.jobs import JobStatus
from ..storage.jobs.outcomes import DEPENDENCY_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

FINAL_STATUSES = tuple(status for status in JobStatus if status.is_final)
_NAMED_PRIORITIES = {"high": -10, "normal": 0, "low": 10}
_ID_DIGITS_MAX = 18
"""No job id has more digits, and a number of this length fits into a frame."""

_PORT_MAX = 65_535
_AGE_DIGITS_MAX = 15
_SECONDS_MAX = 1_000_000_000
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Priority(click.ParamType[int]):
    """A priority: a number from -20 (most urgent) to 19, or high, normal, low."""

    name = "priority"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        text = str(value)
        if text in _NAMED_PRIORITIES:
            return _NAMED_PRIORITIES[text]
        try:
            number = int(text)
        except ValueError:
            number = settings.PRIORITY_MAX + 1
        if not settings.PRIORITY_MIN <= number <= settings.PRIORITY_MAX:
            expected = (
                f"expected {settings.PRIORITY_MIN} to {settings.PRIORITY_MAX}, "
                f"high, normal or low, got {value!r}"
            )
            self.fail(expected, param, ctx)
        return number


class Endpoint(click.ParamType[str]):
    """Where to listen for remote clients: ``tcp://HOST:PORT``; ``*`` or 0 is any free port."""

    name = "endpoint"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        found = re.fullmatch(r"tcp://[^/]+:(\d{1,5}|\*)", text, re.ASCII)
        if found is None or (found[1] != "*" and int(found[1]) > _PORT_MAX):
            self.fail(
                f"expected tcp://HOST:PORT, a port up to {_PORT_MAX}, got {text!r}", param, ctx
            )
        return text


class Dependency(click.ParamType[tuple[int, list[str]]]):
    """A dependency: ``17`` (it must succeed) or ``17:success,failed``."""

    name = "dependency"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, list[str]]:
        number, _, names = str(value).partition(":")
        statuses = names.split(",") if names else ["success"]
        is_id = number.isdecimal() and len(number) <= _ID_DIGITS_MAX
        if not is_id or not set(statuses) <= set(DEPENDENCY_WORDS):
            known = ", ".join(DEPENDENCY_WORDS)
            self.fail(f"expected ID or ID:WORD,... of {known}, got {value!r}", param, ctx)
        return int(number), statuses


class Age(click.ParamType[float]):
    """An age: ``90`` (seconds), ``30m``, ``2h``, ``7d``, or ``all``."""

    name = "age"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if value == "all":
            return -1.0
        text = str(value)
        unit = _UNITS.get(text[-1:])
        number = text[:-1] if unit is not None else text
        if not number.isdecimal() or len(number) > _AGE_DIGITS_MAX:
            expected = f"expected a number with s, m, h, d or w, or all, got {text[:60]!r}"
            self.fail(expected, param, ctx)
        return float(int(number) * (unit or 1))


class Bytes(click.ParamType[int]):
    """A number of bytes: ``4096``, ``200K``, ``1.5M``, ``2G``, ``1T`` (of 1024 each)."""

    name = "bytes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,3})?)([KMGT]?)(?:i?B)?", str(value), re.ASCII)
        if found is None:
            expected = f"expected a number with K, M, G or T, such as 200M, got {str(value)[:60]!r}"
            self.fail(expected, param, ctx)
        number = int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " "))
        if number > plain_values.INTEGER_MAX:
            self.fail(f"expected less than 8 million T, got {str(value)[:60]!r}", param, ctx)
        return number


class Whole(click.ParamType[int]):
    """A whole number within bounds. Help does not show bounds that only say what can be stored."""

    name = "integer"

    def __init__(self, *, least: int | None = None, most: int | None = None) -> None:
        self._least, self._most = least, most

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            number = int(str(value))
        except ValueError:
            self.fail(f"expected a whole number, got {str(value)[:60]!r}", param, ctx)
        if self._least is not None and number < self._least:
            self.fail(f"expected at least {self._least}, got {number}", param, ctx)
        if self._most is not None and number > self._most:
            self.fail(f"expected at most {self._most}, got {str(number)[:60]}", param, ctx)
        return number


class WholeRange(click.IntRange):
    """A whole number within bounds that help shows; an error calls it a number, not a range."""

    name = "integer"


class NumberRange(click.FloatRange):
    """As `WholeRange`, with a fraction."""

    name = "number"


class Seconds(click.ParamType[float]):
    """A time span in seconds: finite, and not negative."""

    name = "seconds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(str(value))
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= _SECONDS_MAX:
            text = f"expected seconds, from 0 to {_SECONDS_MAX}, got {str(value)[:60]!r}"
            self.fail(text, param, ctx)
        return seconds


class Text(click.ParamType[str]):
    """Text that a frame can carry. Python turns an argument that is not UTF-8 into surrogates."""

    name = "text"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"not UTF-8 text: {text[:60]!r}", param, ctx)
        return text


def checked_number(text: str, option: str) -> int:
    """The whole number in ``text``; `UsageError` if it is none, or too large for a frame."""
    try:
        number = int(text)
    except ValueError as error:
        raise errors.UsageError(f"{option}: expected a whole number, got {text[:60]!r}") from error
    if not plain_values.INTEGER_MIN <= number <= plain_values.INTEGER_MAX:
        raise errors.UsageError(f"{option}: expected an integer of at most 64 bits")
    return number


proposed_rule_option = click.option(
    "--rule",
    metavar="JSON|YAML|@FILE",
    help='A rule that is only proposed, such as \'{"action": "PAUSE"}\'. Its keys: priority, '
    "predicates, action, reason, valid_from, valid_until, uuid, name, first.",
)


def submission_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every submission: reason, priority, dependencies, dry run."""

    @click.option(
        "--reason",
        type=Text(),
        metavar="TEXT",
        help="Why; shown in listings and kept in the job.",
    )
    @click.option(
        "--priority",
        type=Priority(),
        metavar="N",
        help="-20 (most urgent) to 19, or high, normal, low.",
    )
    @click.option(
        "--depend",
        "depends",
        type=Dependency(),
        multiple=True,
        metavar="ID[:WORD,...]",
        help="Start only after this job (has succeeded, or ended in one of these statuses or "
        "outcomes; always: in any). May be repeated.",
    )
    @click.option("--dry-run", is_flag=True, help="Check everything, store nothing.")
    @functools.wraps(function)
    def wrapped(*args: Any, depends: tuple[Any, ...], **options: Any) -> Any:  # noqa: ANN401
        return function(*args, depends=list(depends), **options)

    return wrapped
