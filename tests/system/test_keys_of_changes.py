"""A change that is sent again after a kill is answered as the first time, in both placements."""

from __future__ import annotations

import pytest
from tests.faults.harness import Daemon
from tests.system.gates import IN_BOTH_PLACEMENTS

from ganger import BadRequestError, Client

pytestmark = IN_BOTH_PLACEMENTS

UUID = "cccccccc-0000-4000-8000-000000000000"


def test_a_change_that_is_sent_again_after_a_kill_gets_its_first_reply(daemon: Daemon) -> None:
    with Client(daemon.data) as client:
        tagged = client.set_values("cluster", "", {"tags": ["a"]}, key="tag")
        rule = client.add_filter(action="PAUSE", key="rule")
        limits = client.limits(running=3, key="limit")
        named = client.add_filter(uuid=UUID, action="PAUSE")
        client.delete_filter(named, key="gone")
    typed = daemon.run("filter", "add", "--reason", "typed", "--key", "typed").stdout
    with Client(daemon.data) as other:
        other.set_values("cluster", "", {"tags": ["b"]})
        other.delete_filter(rule)
        other.limits(running=5)
    daemon.kill()
    daemon.up()
    with Client(daemon.data) as client:
        before = client.count_objects().serial_no
        assert client.set_values("cluster", "", {"tags": ["a"]}, key="tag") == tagged
        assert client.add_filter(action="PAUSE", key="rule") == rule
        assert client.limits(running=3, key="limit") == limits
        client.delete_filter(named, key="gone")
        again = daemon.run("filter", "add", "--reason", "typed", "--key", "typed")
        assert again.stdout == typed
        assert client.count_objects().serial_no == before
        assert client.limits().running_jobs_max == 5
        with pytest.raises(BadRequestError, match="another change is stored under it"):
            client.set_values("cluster", "", {"tags": ["c"]}, key="tag")
