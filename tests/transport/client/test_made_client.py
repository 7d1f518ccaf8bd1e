from __future__ import annotations

from docs import make_client


def test_the_plain_client_is_what_the_script_makes_from_the_asyncio_client() -> None:
    assert make_client.MADE.read_text(encoding="utf-8") == make_client.made(), (
        make_client.OUT_OF_DATE
    )
