"""``ganger node`` about the use of a node: drain, offline, online, tags, and all that is known."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ..storage import errors
from ..storage.cluster.objects import ObjectKind
from ..storage.nodes import node_states
from . import choices, output
from .call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.client.client import Client
    from ..transport.messages import NodeState

_SERIAL_TRIES = 5
"""How often a change is made anew because somebody else has changed the node meanwhile."""


def _set_use(call: Call, name: str, *, drained: bool, offline: bool, why: str) -> None:
    values = {"drained": drained, "offline": offline}
    with call.client() as client:
        _record(client, name)
        client.set_values("nodes", name, values, why=why)


def _record(client: Client, name: str) -> dict[str, Any]:
    """The node's object. Raises `UnknownObjectError`, which names the nodes that there are."""
    found = client.objects("nodes")
    for one in found:
        if name in {one.get("name"), one.get("uuid")}:
            return one
    known = ", ".join(sorted(str(one.get("name")) for one in found)) or "none"
    raise errors.UnknownObjectError(f"there is no node {name!r}; nodes: {known}")


@click.command(short_help="Let a node take no new jobs.")
@click.argument("name", type=choices.Text())
@click.pass_obj
def drain(call: Call, name: str) -> None:
    """Refuse new jobs with commands on the node NAME. Jobs that are queued run."""
    _set_use(call, name, drained=True, offline=False, why=f"node {name} is drained")
    output.echo(f"Node {name} is drained: no new jobs")


@click.command(short_help="Let a node begin nothing any more.")
@click.argument("name", type=choices.Text())
@click.pass_obj
def offline(call: Call, name: str) -> None:
    """Refuse new jobs with commands on the node NAME, and fail those that are queued.

    A queued job fails when it comes to its command there. A command that runs goes on.
    """
    _set_use(call, name, drained=False, offline=True, why=f"node {name} is offline")
    output.echo(f"Node {name} is offline: nothing begins there")


@click.command(short_help="Let a drained or offline node take jobs again.")
@click.argument("name", type=choices.Text())
@click.pass_obj
def online(call: Call, name: str) -> None:
    """Take jobs with commands on the node NAME again."""
    _set_use(call, name, drained=False, offline=False, why=f"node {name} is online")
    output.echo(f"Node {name} is online: it takes jobs")


@click.command(short_help="Add tags to a node, or remove them.")
@click.option("--remove", "is_removal", is_flag=True, help="Remove these tags.")
@click.argument("name", type=choices.Text())
@click.argument("tags", type=choices.Text(), nargs=-1, required=True)
@click.pass_obj
def tag(call: Call, name: str, tags: Sequence[str], *, is_removal: bool) -> None:
    """Give the node NAME these TAGS, by which `--on tag:TAG` finds it.

    \b
    ganger node tag web1 web prod
    ganger exec --on tag:web -- uptime
    """  # noqa: D301 - the mark that keeps lines apart
    from ..transport.messages import ObjectChange  # noqa: PLC0415

    with call.client() as client:
        for tries_left in reversed(range(_SERIAL_TRIES)):
            record = _record(client, name)
            now = set(record.get("tags") or ())
            after = sorted(now - set(tags) if is_removal else now | set(tags))
            change = ObjectChange(
                kind=ObjectKind.NODE,
                uuid=record["uuid"],
                object={**record, "tags": after},
                serial_no=record.get("serial_no"),
            )
            try:
                client.change_objects(change, why=f"tags of node {name}")
            except errors.StaleSerialError:
                if not tries_left:
                    raise
            else:
                break
    output.echo(f"Tags of {name}: {', '.join(after) or 'none'}")


@click.command(short_help="Show all that is known of a node.")
@click.argument("name", type=choices.Text())
@output.output_option
@click.pass_obj
def info(call: Call, name: str, output_kind: str) -> None:
    """Show the node NAME: its record, its connection, what its daemon says, and who locks it."""
    with call.client() as client:
        states = {one.name: one for one in client.nodes().nodes}
        records = {one.get("name"): one for one in client.objects("nodes")}
        if name not in records and name not in states:
            _record(client, name)
        record, state = records.get(name), states.get(name)
        uuid = name if record is None else str(record.get("uuid"))
        figures = {} if record is None else _figures(client, uuid)
        holders = [row for row in client.locks() if row.name == f"node/{uuid}"]
    owners = [owner for row in holders for owner in row.owners]
    if output_kind == "json":
        shown = {"record": record, "host": state, "figures": figures, "lock_owners": owners}
        output.show_json(shown)
        return
    rows = {
        "Name": name,
        **({} if record is None else _of_record(record)),
        **_of_host(state),
        **_of_figures(figures),
        "Jobs with its lock": ", ".join(owners) or "-",
    }
    width = max(map(len, rows))
    for title, value in rows.items():
        output.echo(f"{title:{width}}  {value}")


def _of_record(record: dict[str, Any]) -> dict[str, Any]:
    use = {
        node_states.DRAINED: "drained: no new jobs",
        node_states.OFFLINE: "offline: nothing begins there",
    }
    return {
        "UUID": record.get("uuid", "-"),
        "Use": use.get(node_states.state_of(record), "online: it takes jobs"),
        "Tags": ", ".join(record.get("tags") or ()) or "-",
        "Primary IP": record.get("primary_ip") or "-",
        "Serial number": record.get("serial_no", "-"),
    }


def _of_host(state: NodeState | None) -> dict[str, Any]:
    if state is None or not state.has_joined:
        return {"Host": "none has joined" if state is None else _invitation(state)}
    is_silent = f"silent since {output.absolute(state.silent_since or None)}"
    if state.problem:
        is_silent = f"refused: {state.problem}"
    live = state.live
    return {
        "Host": f"there, from {state.address}" if state.is_there else is_silent,
        "Joined": output.absolute(state.joined or None),
        "Called": output.absolute(state.called or None),
        "Version": live.get("version", "unknown"),
        "Open calls": state.open_calls,
    }


def _invitation(state: NodeState) -> str:
    until = output.absolute(state.invited_until or None)
    if state.invited_until > time.time():
        return f"invited until {until}, and has not joined yet"
    return f"has not joined: the invitation was valid until {until}"


_FIGURES = ("bootid", "mfree", "mtotal", "dfree", "dtotal", "ctotal")
"""The live fields of a node that are shown."""


def _figures(client: Client, node: str) -> dict[str, Any]:
    """What the node says of itself now; empty: it does not answer, or nobody here can ask it."""
    try:
        [row] = client.query("node", list(_FIGURES), ["==", "name", node]).items
    except errors.BadRequestError:
        # An installation without queries.
        return {}
    return {name: value for name, value in row.items() if value is not None}


def _of_figures(figures: dict[str, Any]) -> dict[str, Any]:
    if not figures:
        return dict.fromkeys(("Boot id", "Memory", "Disk", "CPUs"), "unknown: it does not answer")
    return {
        "Boot id": figures.get("bootid", "unknown"),
        "Memory": _size(figures, "m"),
        "Disk": _size(figures, "d"),
        "CPUs": figures.get("ctotal", "unknown"),
    }


def _size(figures: dict[str, Any], letter: str) -> str:
    free, total = figures.get(f"{letter}free"), figures.get(f"{letter}total")
    return "unknown" if None in {free, total} else f"{free} of {total} MiB free"
