"""``ganger cluster``: the cluster's name and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from . import output
from .config import json_value

if TYPE_CHECKING:
    from ..transport.client.client import Client
    from .call import Call

_FIRST_NAME = "ganger"
"""The name in the configuration of a new data directory."""

_KINDS = ("nodegroups", "nodes", "instances", "networks", "disks", "filters")


@click.group()
def cluster() -> None:
    """Name the cluster, see and change its settings."""


@cluster.command(short_help="Name a new cluster.")
@click.argument("name")
@click.pass_obj
def init(call: Call, name: str) -> None:
    """Give the cluster of a new data directory its name."""
    from ..storage import errors  # noqa: PLC0415

    with call.client() as client:
        found = next(iter(client.objects("cluster")), {})
        known = found.get("cluster_name", _FIRST_NAME)
        if known != _FIRST_NAME or found.get("master_node"):
            raise errors.BadRequestError(
                f"the cluster is initialised, and is called {known}; `ganger config set"
                " cluster/cluster_name NAME` gives it another name"
            )
        client.set_values("cluster", "", {"cluster_name": name}, why="the cluster is initialised")
    output.echo(f"The cluster is called {name}.")


@cluster.command(short_help="Show the cluster and what it has.")
@output.output_option
@click.pass_obj
def info(call: Call, output_kind: str) -> None:
    """Show the cluster's settings, and how many objects of each kind it has."""
    with call.client() as client:
        found = next(iter(client.objects("cluster")), {})
        counted = client.count_objects()
        node = _master(client, found.get("master_node"))
    serial = counted.serial_no
    counts = {kind: counted.counts[kind] for kind in _KINDS}
    if output_kind == "json":
        output.show_json({"cluster": found, "counts": counts, "master": node, "serial_no": serial})
        return
    changed, own_serial = output.absolute(found.get("mtime")), found.get("serial_no", "-")
    rows = {
        "Name": found.get("cluster_name", "-"),
        "UUID": found.get("uuid", "-"),
        "Master node": node or "-",
        "Tags": ", ".join(found.get("tags", [])) or "-",
        "Run slots": found.get("max_running_jobs", "-"),
        "Serial number": f"{serial} (of the configuration, as `ganger config history` has it)",
        "Changed": f"{changed} (these settings, to their serial number {own_serial})",
        **{kind.capitalize(): count for kind, count in counts.items()},
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        output.echo(f"{name:{width}}  {value}")


def _master(client: Client, uuid: str | None) -> str | None:
    """The master's name; its UUID if there is no such node, or it has no name."""
    from ..storage import errors  # noqa: PLC0415

    if not uuid:
        return None
    try:
        [node] = client.objects("nodes", uuid)
    except errors.UnknownObjectError:
        return uuid
    return str(node.get("name", uuid))


@cluster.command(short_help="Change settings of the cluster.")
@click.option("--run-slots", type=click.IntRange(1), help="How many jobs may run at one time.")
@click.option("--candidate-pool-size", type=click.IntRange(1), help="Wanted master candidates.")
@click.option("--mac-prefix", metavar="PREFIX", help="Begin of generated MAC addresses.")
@click.option(
    "--set",
    "settings",
    metavar="FIELD=VALUE",
    multiple=True,
    help="Give a field of the cluster this value (JSON, or a text). May be repeated.",
)
@click.option("--why", metavar="TEXT", default="", help="Why; kept in the history.")
@click.pass_obj
def modify(
    call: Call,
    *,
    run_slots: int | None,
    candidate_pool_size: int | None,
    mac_prefix: str | None,
    settings: tuple[str, ...],
    why: str,
) -> None:
    """Change settings of the cluster, all or none.

    `ganger config get cluster` shows all fields.
    """
    values: dict[str, Any] = {
        "max_running_jobs": run_slots,
        "candidate_pool_size": candidate_pool_size,
        "mac_prefix": mac_prefix,
    }
    values = {name: value for name, value in values.items() if value is not None}
    for setting in settings:
        field, equals, value = setting.partition("=")
        if not equals or not field:
            raise click.UsageError(f"--set {setting}: expected FIELD=VALUE")
        values[field] = json_value(value)
    if not values:
        raise click.UsageError("nothing to change: give an option")
    with call.client() as client:
        client.set_values("cluster", "", values, why=why)
