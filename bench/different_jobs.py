"""Jobs of which no two have the same parameters, as real queues have them."""

from __future__ import annotations

from typing import Any

from .ganger_side import NO_OP


def different_jobs(first: int, count: int) -> list[dict[str, Any]]:
    """So many jobs for `Client.submit_many`; those with other numbers from ``first`` on differ."""
    return [_SHAPES[number % len(_SHAPES)](number) for number in range(first, first + count)]


def _command(number: int) -> dict[str, Any]:
    return {"OP_ID": "OP_EXEC", "argv": ["/usr/bin/backup", f"--host=web-{number}.example.org"]}


def _of_instance(number: int) -> dict[str, Any]:
    return {**_command(number), "locks": {"instance": {"exclusive": [f"instance-{number}"]}}}


def _tags(number: int) -> dict[str, Any]:
    name = f"instance-{number}.example.org"
    return {"OP_ID": "OP_TAGS_SET", "kind": "instance", "name": name, "tags": [f"batch-{number}"]}


def _delay(number: int) -> dict[str, Any]:
    return {**NO_OP, "duration": 1.0 + number, "on_nodes": [f"node-{number % 200}"]}


_SHAPES = (
    lambda number: {"ops": [_command(number)]},
    lambda number: {"ops": [_of_instance(number)]},
    lambda number: {"ops": [_tags(number)]},
    lambda number: {"ops": [_delay(number)]},
    lambda number: {"ops": [_command(number)], "priority": number % 10 - 5},
    lambda number: {
        "ops": [_of_instance(number)],
        "reason": [(f"user-{number % 50}", f"maintenance {number}", number)],
    },
    # Not of the first job of a submission: there would be nothing before it.
    lambda number: {"ops": [_tags(number)], "depends": [(-1, ["success", "error"])]},
    lambda number: {"ops": [_command(number), _tags(number), _delay(number)]},
)
