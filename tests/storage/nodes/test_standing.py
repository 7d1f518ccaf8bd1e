from __future__ import annotations

import pytest

from ganger.storage import errors
from ganger.storage.nodes import host_table
from ganger.storage.nodes.host_table import HostRecord, HostTable, TaskStanding

HOSTS = {
    "web1": HostRecord(name="web1", key="k", joined=100.0, forgotten=200.0),
    "web2": HostRecord(name="web2", key="k2", joined=100.0),
    "web3": HostRecord(name="web3"),
}
TABLE = HostTable(endpoint="", hosts=HOSTS)


@pytest.mark.parametrize(
    ("name", "began", "expected"),
    [
        ("web1", 201.0, TaskStanding.OPEN),
        ("web1", 200.0, TaskStanding.FORGOTTEN),
        ("web1", 50.0, TaskStanding.FORGOTTEN),
        ("web2", 150.0, TaskStanding.OPEN),
        ("web2", 99.0, TaskStanding.JOINED_SINCE),
        ("web3", 150.0, TaskStanding.REMOVED),
        ("web9", 150.0, TaskStanding.REMOVED),
    ],
)
def test_whether_a_node_knows_a_task(name: str, began: float, expected: TaskStanding) -> None:
    assert host_table.standing(TABLE, name, began) is expected


def test_without_a_table_every_node_is_gone() -> None:
    assert host_table.standing(None, "web1", 1.0) is TaskStanding.REMOVED


def test_tasks_are_forgotten_up_to_a_moment() -> None:
    table = host_table.forgotten(TABLE, "web2", 150.0)
    assert host_table.standing(table, "web2", 149.0) is TaskStanding.FORGOTTEN
    assert host_table.standing(table, "web2", 151.0) is TaskStanding.OPEN
    with pytest.raises(errors.BadRequestError, match="there is no node 'web9'"):
        host_table.forgotten(TABLE, "web9", 1.0)
