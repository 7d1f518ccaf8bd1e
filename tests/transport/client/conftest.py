"""A client of the daemon on ``data``: each test that uses it runs on both kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.transport.client.both_clients import Connect, connect_either

from ganger import Client

__all__ = ["connect_either"]


@pytest.fixture
def client(data: Path, connect: Connect) -> Client:
    return connect(data)
