"""``ganger cluster``: the cluster's name and settings."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
import msgspec

from . import choices, output, repeating
from .config import json_value

if TYPE_CHECKING:
    from collections.abc import Mapping

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
@repeating.key_option()
@click.pass_obj
def init(call: Call, name: str, key: str | None) -> None:
    """Give the cluster of a new data directory its name."""
    from ..storage import errors  # noqa: PLC0415

    with call.client() as client:
        found = next(iter(client.objects("cluster")), {})
        known = found.get("cluster_name", _FIRST_NAME)
        is_repeated = key is not None and known == name
        if not is_repeated and (known != _FIRST_NAME or found.get("master_node")):
            raise errors.BadRequestError(
                f"the cluster is initialised, and is called {known}; `ganger config set"
                " cluster/cluster_name NAME` gives it another name"
            )
        values = {"cluster_name": name}
        with repeating.under(key) as used:
            client.set_values("cluster", "", values, why="the cluster is initialised", key=used)
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
        from ..storage.prediction.policy import policy_of  # noqa: PLC0415

        policy = msgspec.structs.asdict(policy_of(found))
        policy["costs"] = msgspec.structs.asdict(policy["costs"])
        shown = {"cluster": found, "counts": counts, "master": node, "serial_no": serial}
        output.show_json({**shown, "prediction": policy})
        return
    changed, own_serial = output.absolute(found.get("mtime")), found.get("serial_no", "-")
    rows = {
        "Name": found.get("cluster_name", "-"),
        "UUID": found.get("uuid", "-"),
        "Master node": node or "-",
        "Tags": ", ".join(found.get("tags", [])) or "-",
        "Run slots": found.get("max_running_jobs", "-"),
        **_prediction(found),
        "Serial number": f"{serial} (of the configuration, as `ganger config history` has it)",
        "Changed": f"{changed} (these settings, to their serial number {own_serial})",
        **{kind.capitalize(): count for kind, count in counts.items()},
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        output.echo(f"{name:{width}}  {value}")


def _prediction(cluster: Mapping[str, Any]) -> dict[str, str]:
    """How the scheduler predicts which jobs would wait for locks."""
    from ..storage.prediction.policy import judged  # noqa: PLC0415

    policy, problems = judged(cluster)
    wrong = {"Not in force": "; ".join(problems)} if problems else {}
    if not policy.is_predictive:
        return {"Prediction": "off", **wrong}
    holds = "holds jobs back that would block" if policy.holds_back else "holds no job back"
    reads = "all opcodes of a job" if policy.all_opcodes else "a job's first opcode"
    costs = " ".join(f"{cost:g}" for cost in msgspec.structs.astuple(policy.costs))
    return {
        "Prediction": f"on: {holds}, reads {reads}",
        "Weights": f"base {policy.base:g}, costs {costs}; 0 after {policy.ticks:g} ticks of"
        f" {policy.tick_seconds:g} s",
        **wrong,
    }


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
@click.option("--run-slots", type=choices.WholeRange(1), help="How many jobs may run at one time.")
@click.option(
    "--predictive-queue/--no-predictive-queue",
    default=None,
    help="Whether jobs that are less likely to wait for locks start first.",
)
@click.option(
    "--hold-back/--no-hold-back",
    default=None,
    help="Whether a job that is certain to wait for a lock gets no run slot meanwhile.",
)
@click.option(
    "--all-opcodes/--first-opcode",
    default=None,
    help="Whether all opcodes of a job count, or its first one.",
)
@click.option("--candidate-pool-size", type=choices.WholeRange(1), help="Wanted master candidates.")
@click.option("--mac-prefix", metavar="PREFIX", help="Begin of generated MAC addresses.")
@click.option(
    "--set",
    "settings",
    metavar="FIELD=VALUE",
    multiple=True,
    help="Give a field of the cluster this value (JSON, or a text). May be repeated.",
)
@click.option("--why", metavar="TEXT", default="", help="Why; kept in the history.")
@repeating.key_option()
@click.pass_obj
def modify(
    call: Call,
    *,
    run_slots: int | None,
    predictive_queue: bool | None,
    hold_back: bool | None,
    all_opcodes: bool | None,
    candidate_pool_size: int | None,
    mac_prefix: str | None,
    settings: tuple[str, ...],
    why: str,
    key: str | None,
) -> None:
    """Change settings of the cluster, all or none.

    `ganger config get cluster` shows all fields.
    """
    values: dict[str, Any] = {
        "max_running_jobs": run_slots,
        "enabled_predictive_queue": predictive_queue,
        "predictive_queue/holds_back": hold_back,
        "predictive_queue/all_opcodes": all_opcodes,
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
    with call.client() as client, repeating.under(key) as used:
        client.set_values("cluster", "", values, why=why, key=used)


with suppress(ModuleNotFoundError):
    # A package may leave out the commands for Ganeti.
    cluster.add_command(importlib.import_module("ganger.cli.ganeti.watcher").watcher)
