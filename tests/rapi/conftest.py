"""A daemon with the page, and a browser, for the tests that ask for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.rapi.served import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("page"), has_tls=True) as served:
        yield served
