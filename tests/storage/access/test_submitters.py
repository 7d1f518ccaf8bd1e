"""Users are looked up once, not for each request of theirs."""

from __future__ import annotations

from unittest import mock

import pytest

from ganger.storage.access.submitters import user_text
from ganger.storage.disk import ownership


def test_the_name_of_a_user_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    user_text.cache_clear()
    found = mock.Mock(return_value="alice")
    monkeypatch.setattr(ownership, "user_name", found)
    assert [user_text(1000), user_text(1000)] == ["alice (uid 1000)"] * 2
    found.assert_called_once_with(1000)
    user_text.cache_clear()
