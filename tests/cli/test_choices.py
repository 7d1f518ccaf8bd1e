"""Values of options: the outermost ones are taken, and those beyond are refused."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from ganger.cli import choices
from ganger.cli.main import ganger
from ganger.storage import errors


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (choices.Priority(), -20, 19),
        (choices.Whole(least=1, most=3), 1, 3),
        (choices.Seconds(), 0, 1_000_000_000),
    ],
)
def test_numbers_are_taken_up_to_their_bounds(
    kind: click.ParamType[Any], first: int, last: int
) -> None:
    for number in (first, last):
        assert kind.convert(str(number), None, None) == number
    for beyond in (first - 1, last + 1, "x"):
        with pytest.raises(click.BadParameter, match="expected"):
            kind.convert(str(beyond), None, None)


@pytest.mark.parametrize(
    ("kind", "text", "value", "beyond"),
    [
        (choices.Endpoint(), "tcp://*:65535", "tcp://*:65535", "tcp://*:65536"),
        (choices.Endpoint(), "tcp://h:*", "tcp://h:*", "tcp://h:**"),
        (choices.Dependency(), "9" * 18, (10**18 - 1, ["success"]), "9" * 19),
        (
            choices.Dependency(),
            "7:success,error,canceled",
            (7, ["success", "error", "canceled"]),
            "7:running",
        ),
        (choices.Age(), "1000000000", 1e9, "1000000001"),
        (choices.Age(), "all", -1.0, "ALL"),
        (choices.Seconds(), "1.5h", 5_400.0, "1.5 h"),
        (choices.Seconds(), "2w", 1_209_600.0, "2y"),
        (choices.Seconds(least=2.0), "2", 2.0, "1.9"),
        (choices.Age(), "0", 0.0, "-1"),
    ],
)
def test_texts_are_taken_up_to_their_bounds(
    kind: click.ParamType[Any], text: str, value: object, beyond: str
) -> None:
    assert kind.convert(text, None, None) == value
    with pytest.raises(click.BadParameter, match="expected"):
        kind.convert(beyond, None, None)


def test_a_number_of_an_option_has_64_bits() -> None:
    for number in (-(2**63), 2**63 - 1):
        assert choices.checked_number(str(number), "--set") == number
    for beyond in (-(2**63) - 1, 2**63, "x"):
        with pytest.raises(errors.UsageError, match="--set: expected"):
            choices.checked_number(str(beyond), "--set")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--rapi-port", "abc"), "expected a whole number, got 'abc'"),
        (("--rapi-port", "99999"), "expected at most 65535, got 99999"),
        (("--hung-after", "abc"), "expected a time such as 90, 30m, 2h or 7d"),
    ],
)
def test_what_is_no_number_is_called_so(words: tuple[str, ...], problem: str) -> None:
    done = CliRunner().invoke(ganger, ["up", *words])
    assert done.exit_code == 2
    assert problem in done.output
