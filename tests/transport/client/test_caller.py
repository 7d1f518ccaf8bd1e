"""What only the plain client has: threads that take turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.transport.client.both_clients import Aside
from tests.transport.client.fake_daemon import PATIENCE_SECONDS, FakeDaemon

from ganger import Client
from ganger.storage import errors
from ganger.transport import messages

OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0}
Start = Callable[..., FakeDaemon]


def test_a_turn_that_does_not_come_is_a_missed_deadline(start: Start, data: Path) -> None:
    first = start(silent_to=(messages.ReadJob,))
    with Client(data, timeout=PATIENCE_SECONDS) as client:
        client.submit(OP)
        waiting = Aside(lambda: client.job(1))
        first.wait_for(messages.ReadJob)
        with pytest.raises(errors.DeadlineError, match="another thread"):
            client.cancel(1, timeout=0.05)
        first.kill()
        start(first.store)
        assert waiting.result().id == 1
