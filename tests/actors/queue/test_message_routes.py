"""Each message that the queue accepts has one row, in the table of the side that says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args
from unittest.mock import Mock

import pytest

from ganger.actors.queue import job_queue
from ganger.transport import messages

if TYPE_CHECKING:
    from collections.abc import Callable

SAID_OUTSIDE = {*get_args(messages.QueueRequest), *get_args(messages.QueueReportOfJob)}


@pytest.mark.parametrize(
    ("table", "accepted"),
    [
        (job_queue.from_clients, set(get_args(messages.QueueRequest))),
        (job_queue.from_jobs, set(get_args(messages.QueueReportOfJob))),
        (job_queue.from_components, set(get_args(messages.QueueMessage)) - SAID_OUTSIDE),
    ],
    ids=["clients", "jobs", "components"],
)
def test_a_table_has_a_row_for_each_message_of_its_union(
    table: Callable[[Mock], job_queue.Routes], accepted: set[type[messages.Message]]
) -> None:
    assert set(table(Mock())) == accepted


def test_a_message_has_one_row() -> None:
    tables = (job_queue.from_clients, job_queue.from_jobs, job_queue.from_components)
    counted = sum(len(table(Mock())) for table in tables)
    assert counted == len(job_queue.routes(Mock())) == len(get_args(messages.QueueMessage))
