"""``ganger node``: hosts join the cluster, and their daemons start and stop."""

from __future__ import annotations

import operator
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource

from ..storage import errors, wording
from ..storage.disk import documents, ownership, paths
from ..storage.nodes import node_states
from . import choices, copying, node_use, output
from .call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..storage.access.keys import KeyPair
    from ..storage.nodes.tokens import Token
    from ..transport.client.client import Client
    from ..transport.messages import NodeState

DATA_VARIABLE = "GANGER_NODE_DATA"
"""The data directory of this host's node daemon, unless --data names it."""


@click.group()
def node() -> None:
    """Let hosts join the cluster, and see and remove them.

    \b
    On the master:   ganger node invite web1
    On the host:     ganger node join TOKEN
    Then:            ganger exec --on web1 -- uptime
    """  # noqa: D301 - the mark that keeps lines apart


# ---------------------------------------------------------------- on the master


@node.command(short_help="Print the command with which a host joins.")
@click.argument("name", type=choices.Text())
@click.option(
    "--valid-for",
    type=choices.Seconds(least=1.0),
    metavar="TIME",
    help="How long the token is valid, such as 10m; an hour without it.",
)
@click.option(
    "--listen",
    type=choices.Endpoint(),
    metavar="ENDPOINT",
    help="Where the master listens for all nodes from now on; tcp://0.0.0.0:7611 at first.",
)
@click.option(
    "--announce",
    type=choices.Endpoint(is_listening=False),
    metavar="ENDPOINT",
    multiple=True,
    help="Where hosts find the master, such as tcp://10.0.0.1:7611, if not at its own addresses. "
    "May be repeated; kept.",
)
@click.pass_obj
def invite(
    call: Call, name: str, valid_for: float | None, listen: str | None, announce: Sequence[str]
) -> None:
    """Let a host join as the node NAME: print the line to run there.

    The token in it is good for one host, once. Whoever has it can join in its place until then. The
    command may be repeated; each of its tokens is good.
    """
    with call.client() as client:
        before = client.nodes()
        found = client.invite_node(name, valid_for=valid_for, endpoint=listen, announced=announce)
    output.echo(f"ganger node join {found.token}")
    if any(one.name == name and one.is_there for one in before.nodes):
        text = f"node {name} is there: another host that joins with this line takes its place"
        output.echo(f"ganger: {text}", err=True)
    away = [one.name for one in before.nodes if one.has_joined and not one.is_there]
    if listen is not None and away and listen != before.endpoint:
        text = (
            f"{', '.join(away)} joined at {before.endpoint}, and cannot be told where to call now"
        )
        output.echo(f"ganger: {text}; invite each anew: its own line leads it here", err=True)


@node.command("list", short_help="List the nodes.")
@output.style_options
@click.pass_obj
def list_nodes(call: Call, style: output.Style) -> None:
    """List the nodes that have joined or were invited, and whether they are there."""
    with call.client() as client:
        listed = client.nodes()
        uses = node_states.states_of(client.objects("nodes"))
    if listed.problem:
        output.echo(f"ganger: nodes cannot call: {listed.problem}", err=True)
    if style.output == "json":
        output.show_json(listed.nodes)
        return
    names = output.chosen_fields(style, [*_COLUMNS], [*_COLUMNS])
    rows = [_row(one, uses.get(one.name)) for one in listed.nodes]
    output.show_rows(rows, [_COLUMNS[name] for name in names], style, noun="nodes")


_COLUMNS = {
    name: output.Column(name, operator.itemgetter(name))
    for name in ("name", "state", "use", "since", "address", "version", "open_calls")
}


def _row(found: NodeState, use: str | None) -> dict[str, Any]:
    state, since = "there", found.called
    if not found.has_joined:
        state, since = "invited", 0.0
        if found.invited_until <= time.time():
            state, since = "invitation past", found.invited_until
    elif not found.is_there:
        state, since = "refused" if found.problem else "silent", found.silent_since
    return {
        "name": found.name,
        "state": state,
        "use": use or "-",
        "since": output.absolute(since or None),
        "address": found.address or "-",
        "version": found.live.get("version", "-"),
        "open_calls": found.open_calls,
    }


@node.command(short_help="Forget a node.")
@click.argument("name", type=choices.Text())
@click.option(
    "--force", is_flag=True, help="Also while jobs wait for its commands: their locks are freed."
)
@click.pass_obj
def remove(call: Call, name: str, *, force: bool) -> None:
    """Forget the node NAME: its connection ends at once, and its key is not accepted any more.

    Refused while jobs wait for commands there: these may still run.
    """
    with call.client() as client:
        is_waited_for = _is_waited_for(client, name)
        if is_waited_for and not force:
            raise errors.BadRequestError(
                f"jobs wait for commands of node {name}, or hold its lock: end them, or say that "
                f"the commands do not run any more (`ganger node forget-tasks {name}`), or --force"
            )
        client.remove_node(name)
    output.echo(f"Node {name} is removed")
    if is_waited_for:
        text = "jobs waited for its commands: these may still run, and have no locks any more"
        output.echo(f"ganger: {text}", err=True)


def _is_waited_for(client: Client, name: str) -> bool:
    """Whether a job waits for a command there: it asks, or has the lock between two questions."""
    here = [one for one in client.nodes().nodes if one.name == name]
    if any(one.open_calls or one.left_tasks for one in here):
        return True
    uuids = [str(one["uuid"]) for one in client.objects("nodes") if one["name"] == name]
    names = {f"node/{each}" for each in (name, *uuids)}
    return bool(here) and any(lock.owners and lock.name in names for lock in client.locks())


for _command in (
    node_use.info,
    node_use.drain,
    node_use.offline,
    node_use.online,
    node_use.tag,
    copying.copy,
):
    node.add_command(_command)


@node.command("forget-tasks", short_help="Wait no longer for what runs on a lost node.")
@click.argument("name", type=choices.Text())
@click.pass_obj
def forget_tasks(call: Call, name: str) -> None:
    """Wait no longer for the tasks that have begun on the node NAME.

    Say it of a host that will not come back, or whose commands you have ended yourself: jobs that
    wait for it end in an error, and the locks that were kept for its tasks are freed.
    """
    with call.client() as client:
        count = client.forget_tasks(name)
    jobs = wording.counted(count, "job")
    output.echo(f"The tasks of node {name} are forgotten; {jobs} waited for them")


# ---------------------------------------------------------------- on the host


def _host_call(call: Call) -> Call:
    """The call with the data directory of this host's node daemon."""
    root = click.get_current_context().find_root()
    if root.get_parameter_source("data") is ParameterSource.COMMANDLINE:
        return call
    named = os.environ.get(DATA_VARIABLE)
    return Call(data=named or f"{paths.default_data_directory()}-node")


@node.command(short_help="Make this host a node, and start its daemon.")
@click.argument("token", type=choices.Text())
@click.pass_obj
def join(call: Call, token: str) -> int:
    """Join the cluster that TOKEN names, and start the node daemon in the background.

    `ganger node invite` on the master prints this line. It may be repeated. The node daemon has a
    data directory of its own: ~/.local/share/ganger-node, or /var/lib/ganger-node (root), or what
    GANGER_NODE_DATA or --data names.
    """
    from ..storage.access import keys  # noqa: PLC0415
    from ..storage.nodes import membership, tokens  # noqa: PLC0415
    from ..transport.client import joining  # noqa: PLC0415

    given = tokens.decode(token)
    host = _host_call(call)
    places = host.places
    ownership.require_own(places, f"node join {token}")
    _check_directory(places, given)
    documents.make_data_directory(places.data)
    pair = _own_pair(places)
    found = before = membership.read(places)
    directory = keys.to_hex(pair.public)[:32] if found is None else found.directory
    try:
        greeted = joining.join(given, pair.public, directory)
    except errors.DaemonUnreachableError as error:
        if found is None:
            raise
        # The node daemon goes on calling.
        output.echo(f"ganger: {error.text}; this host had joined before", err=True)
    else:
        found = membership.Membership(
            cluster=given.cluster,
            cluster_name=given.cluster_name,
            name=greeted.name,
            endpoints=given.endpoints,
            server=given.server,
            public=pair.public,
            secret=pair.secret,
            directory=directory,
        )
        membership.write(places, found)
    if before not in (None, found):
        # What it has read when it started does not hold any more.
        _stop_daemon(host)
    output.echo(f"This host is the node {found.name} of the cluster {found.cluster_name}")
    return _start_daemon(host)


def _check_directory(places: paths.Places, token: Token) -> None:
    from ..storage.nodes import membership  # noqa: PLC0415

    found = membership.read(places)
    if found is not None and (found.cluster, found.name) != (token.cluster, token.node):
        # Clusters may have the same name.
        what = f"another cluster, {token.cluster_name} with the UUID {token.cluster}"
        if found.cluster == token.cluster:
            what = f"the node {token.node}"
        raise errors.BadRequestError(
            f"{places.data} is that of the node {found.name} of the cluster {found.cluster_name}, "
            f"and the token is for {what}; "
            f"another data directory (--data, {DATA_VARIABLE}) can be another node"
        )
    if found is None and places.queue.is_dir():
        raise errors.BadRequestError(
            f"{places.data} is the data directory of a master; name another one with "
            f"--data or {DATA_VARIABLE}"
        )


def _own_pair(places: paths.Places) -> KeyPair:
    """This host's key, made the first time: a join that is repeated shows the same one."""
    from ..storage.access import keys  # noqa: PLC0415
    from ..storage.nodes import membership  # noqa: PLC0415
    from ..transport.zmq.sockets import new_key_pair  # noqa: PLC0415

    if (found := membership.read(places)) is not None:
        # It may have been rotated since.
        return keys.KeyPair(public=found.public, secret=found.secret)
    path = places.data / "node.key"
    if not path.exists():
        with suppress(errors.BadRequestError):
            keys.create_key(path, new_key_pair())
    return keys.read_key(path)


def _stop_daemon(host: Call) -> None:
    from .up import down as stop  # noqa: PLC0415

    context = click.get_current_context()
    context.obj = host
    context.invoke(stop)


def _start_daemon(host: Call) -> int:
    from .up import start_node  # noqa: PLC0415

    return start_node(host)


def _require_node(places: paths.Places) -> None:
    if not places.membership.exists():
        if places.queue.is_dir():
            text = f"{places.data} is the data directory of a master, not that of a node"
            raise errors.BadRequestError(f"{text}; --data or {DATA_VARIABLE} names another one")
        raise errors.BadRequestError(
            f"{places.data} is not that of a node: `ganger node join TOKEN` makes it one"
        )


@node.command("rotate-key", short_help="Give this host a new key.")
@click.pass_obj
def rotate_key(call: Call) -> int:
    """Make a new key pair for this host, tell the master, and have the node daemon use it.

    The master takes both keys until the node daemon has called with the new one; then the old one
    is worth nothing. The node daemon is restarted if it runs; its tasks go on. Harmless to repeat.
    """
    from ..storage.nodes import membership  # noqa: PLC0415
    from ..transport.client import joining  # noqa: PLC0415
    from ..transport.zmq.sockets import new_key_pair  # noqa: PLC0415
    from .up import running_pid  # noqa: PLC0415

    host = _host_call(call)
    _require_node(host.places)
    ownership.require_own(host.places, "node rotate-key")
    found, pair = membership.read(host.places), new_key_pair()
    assert found is not None
    joining.tell_new_key(found, pair.public)
    changed = msgspec.structs.replace(found, public=pair.public, secret=pair.secret)
    membership.write(host.places, changed)
    output.echo(f"The node {found.name} has a new key")
    if running_pid(host.places) is None:
        return 0
    _stop_daemon(host)
    return _start_daemon(host)


@node.command(short_help="Check what this host lets tasks do.")
@click.pass_obj
def check(call: Call) -> None:
    """Check node.toml in the data directory of this host's node daemon, and say what it allows.

    \b
    [tasks]
    users = ["deploy"]          besides the daemon's own; none without this line
    commands = ["/usr/bin/*"]   programs; all without this line
    directories = ["/srv/*"]    where commands may begin; all without this line
    calls = ["node_info"]       calls by name; all without this line
    opcodes = ["OP_GREET"]      opcodes of packages; all without this line
    paths = ["/srv/*"]          files to write and look at; all without this line if any
                                command may run, else none
    restricted_commands = "/D"  the directory of commands that others
                                may name; none without this line

    A change holds from the next task on.
    """  # noqa: D301 - the mark that keeps lines apart
    from ..storage.nodes import task_settings  # noqa: PLC0415

    places = _host_call(call).places
    _require_node(places)
    found = task_settings.read(places.node_settings)
    there = "" if places.node_settings.exists() else " (there is no such file)"
    output.echo(f"{places.node_settings}{there}")
    allowed = {
        "users": found.users or ["only the daemon's own"],
        "commands": found.commands,
        "directories": found.directories,
        "calls": found.calls,
        "opcodes": found.opcodes,
        "paths": found.allowed_paths,
        "restricted": [found.restricted_commands] if found.restricted_commands else [],
    }
    for name, given in allowed.items():
        shown = ", ".join(given) or "none"
        output.echo(f"{name + ':':13}{'all' if shown == '*' else shown}")


@node.command(short_help="Start this host's node daemon.")
@click.pass_obj
def up(call: Call) -> int:
    """Start the node daemon of this host in the background; harmless when it runs already."""
    host = _host_call(call)
    _require_node(host.places)
    ownership.require_own(host.places, "node up")
    return _start_daemon(host)


@node.command(short_help="Stop this host's node daemon; tasks go on.")
@click.pass_obj
def down(call: Call) -> None:
    """Stop the node daemon of this host. Its tasks go on, and the next daemon takes them over."""
    host = _host_call(call)
    _require_node(host.places)
    _stop_daemon(host)


@node.command(short_help="Tell how this host's node daemon is.")
@click.pass_context
def status(context: click.Context) -> Any:  # noqa: ANN401 - as `ganger status`
    """Tell how the node daemon of this host is, and whether the master has its call.

    Jobs are the tasks here. Exit codes as those of `ganger status`.
    """
    from .status import status as tell  # noqa: PLC0415

    host = _host_call(context.obj)
    _require_node(host.places)
    context.obj = host
    return context.invoke(tell)
