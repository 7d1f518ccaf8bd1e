"""Errors are one line of a bounded length, whatever they repeat."""

from __future__ import annotations

import pytest

from ganger.rapi import problems
from ganger.storage import errors


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\x00b", "a\u2028b", "a\x1b[31mb"])
def test_a_message_is_one_line(text: str) -> None:
    message = problems.body(400, text)["message"]
    assert str(message).isprintable()
    assert message == "".join(sign if sign.isprintable() else " " for sign in text)


def test_a_message_repeats_only_the_beginning_of_a_long_text() -> None:
    message = problems.body(400, "x" * 5_000_000)["message"]
    assert message == "x" * 4_000 + "..."
    assert problems.body(400, "é <b>")["message"] == "é &lt;b&gt;"


def test_an_outcome_that_nobody_knows_is_no_code_that_asks_for_a_repetition() -> None:
    unknown = errors.OutcomeUnknownError.of(errors.StorageError("Input/output error"))
    for answer in (problems.of(unknown), problems.of_query(unknown)):
        text = "Input/output error; whether this change took effect is unknown"
        assert (answer.code, answer.text) == (500, text)
    assert problems.of(errors.ReadOnlyError()).code == 503
