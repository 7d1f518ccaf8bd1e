from __future__ import annotations

import pytest
from docs import make_client


@pytest.mark.parametrize("name", make_client.MADE)
def test_the_plain_client_is_what_the_script_makes_from_the_asyncio_client(name: str) -> None:
    text = (make_client.CLIENTS / name).read_text(encoding="utf-8")
    assert text == make_client.made(name), make_client.OUT_OF_DATE.format(name)
