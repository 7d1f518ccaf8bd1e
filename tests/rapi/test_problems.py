"""Errors are one line of a bounded length, whatever they repeat."""

from __future__ import annotations

import pytest

from ganger.rapi import problems


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\x00b", "a\u2028b", "a\x1b[31mb"])
def test_a_message_is_one_line(text: str) -> None:
    message = problems.body(400, text)["message"]
    assert str(message).isprintable()
    assert message == "".join(sign if sign.isprintable() else " " for sign in text)


def test_a_message_repeats_only_the_beginning_of_a_long_text() -> None:
    message = problems.body(400, "x" * 5_000_000)["message"]
    assert message == "x" * 4_000 + "..."
    assert problems.body(400, "é <b>")["message"] == "é &lt;b&gt;"
