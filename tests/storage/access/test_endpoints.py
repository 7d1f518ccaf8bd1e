"""Which words are endpoints."""

from __future__ import annotations

import pytest

from ganger.storage.access import endpoints


@pytest.mark.parametrize(
    "text", ["tcp://127.0.0.1:7611", "tcp://web.example:1", "tcp://[::1]:65535"]
)
def test_an_endpoint_is_one_for_both_sides(text: str) -> None:
    assert endpoints.problem(text, is_listening=True) == ""
    assert endpoints.problem(text, is_listening=False) == ""


@pytest.mark.parametrize(
    "text", ["tcp://*:7611", "tcp://0.0.0.0:7611", "tcp://10.0.0.1:0", "tcp://[::]:1"]
)
def test_a_place_to_listen_need_not_be_one_to_call(text: str) -> None:
    assert endpoints.problem(text, is_listening=True) == ""
    expected = f"expected an address and a port at which hosts can call, got {text!r}"
    assert endpoints.problem(text, is_listening=False) == expected


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1:1", "tcp://10.0.0.1", "tcp://::1:7611", "tcp://a:65536", "tcp://a b:1"]
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    expected = f"expected tcp://HOST:PORT, a port up to 65535, got {text!r}"
    assert endpoints.problem(text, is_listening=True) == expected
