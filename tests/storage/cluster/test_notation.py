"""Numbers of ``config.data`` as Ganeti writes them, and nothing else changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.storage.cluster import notation

RECORDED = Path(__file__).parents[2] / "compatibility/data/config.data"

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | FLOATS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def test_a_recorded_configuration_is_written_again_to_the_byte() -> None:
    data = RECORDED.read_bytes()
    assert notation.encode(msgspec.json.decode(data)) == data


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1_795_225_460.856_607_2, "1.7952254608566072e9"),
        (0.0, "0"),
        (-0.0, "0"),
        (-3.0, "-3"),
        (22.5, "22.5"),
        (9_999_999.5, "9999999.5"),
        (10_000_000.5, "1.00000005e7"),
        (0.1, "0.1"),
        (0.05, "5.0e-2"),
        (-0.0625, "-6.25e-2"),
        (1e-07, "1.0e-7"),
        (1.5e300, "1.5e300"),
        (1e22, "1.0e22"),
    ],
)
def test_a_number_has_the_form_of_ganeti(value: float, text: str) -> None:
    assert notation.number(value) == text


@given(FLOATS)
def test_a_number_is_read_back_as_it_was(value: float) -> None:
    assert float(notation.number(value)) == value


@settings(max_examples=50)
@given(st.dictionaries(st.text(), PLAIN, max_size=4))
def test_a_document_is_read_back_as_it_was(document: dict[str, Any]) -> None:
    assert msgspec.json.decode(notation.encode(document)) == document


@pytest.mark.parametrize("text", ["1.5", ",2.5,", '"3.5"', "\\", '\\"4.5', "[5.5e3]", "\n6.50"])
def test_numbers_in_texts_stay_as_they_are(text: str) -> None:
    document = {text: [text, 0.25, {text: text}, -1e-9, text]}
    written = notation.encode(document)
    shown = msgspec.json.encode(text)
    expected = b"{%b:[%b,0.25,{%b:%b},-1.0e-9,%b]}" % ((shown,) * 5)
    assert written == expected
