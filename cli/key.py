"""``ganger key``: CURVE keys of remote clients."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..storage import errors
from ..storage.access import keys
from ..storage.disk import documents, ownership
from . import output

if TYPE_CHECKING:
    from .call import Call


@click.group()
def key() -> None:
    """Make, authorise and revoke keys for remote clients."""


@key.command(short_help="Make a client's key pair.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def create(file: Path) -> None:
    """Make a client's key pair in FILE (readable by you alone).

    Prints the command that lets the client in, to be run where the daemon is.
    """
    from ..transport.zmq.sockets import new_key_pair  # noqa: PLC0415 - zmq is not for every command

    pair = new_key_pair()
    keys.create_key(file, pair)
    output.echo(f"ganger key authorise {_client_name(file)} {keys.to_hex(pair.public)}")


def _client_name(file: Path) -> str:
    """A name for the client with this key file."""
    with contextlib.suppress(errors.BadRequestError):
        keys.check_name(file.stem)
        return file.stem
    return "NAME"


@key.command(short_help="Let in a client by its public key.")
@click.argument("name")
@click.argument("public_key")
@click.pass_obj
def authorise(call: Call, name: str, public_key: str) -> None:
    """Let in the client with PUBLIC_KEY (the key itself, or a key file), known as NAME.

    A running daemon knows it at once. Prints the daemon's own public key, which the client
    needs.
    """
    from ..transport.zmq.sockets import new_key_pair  # noqa: PLC0415

    places = call.places
    ownership.require_own(places, f"key authorise {shlex.join([name, public_key])}")
    if Path(public_key).is_file():
        public_key = keys.read_public_key(Path(public_key))
    documents.make_data_directory(places.data)
    keys.authorise(places.keys, public_key, name)
    server = keys.server_pair(places.keys, new_key_pair)
    output.echo(f"Authorised {name}. The daemon's public key: {keys.to_hex(server.public)}")


@key.command(short_help="Let in a client no more.")
@click.argument("name")
@click.pass_obj
def revoke(call: Call, name: str) -> None:
    """Let in the client known as NAME no more. A running daemon knows it at once.

    Requests on connections that it has already are refused, too. Its jobs go on.
    """
    places = call.places
    ownership.require_own(places, f"key revoke {shlex.join([name])}")
    keys.revoke(places.keys, name)
    output.echo(f"Revoked {name}")


@key.command("list")
@output.style_options
@click.pass_obj
def list_keys(call: Call, style: output.Style) -> None:
    """List the clients that are let in."""
    known = sorted(
        (name, keys.to_hex(public)) for public, name in keys.known_keys(call.places.keys).items()
    )
    if style.output == "json":
        output.show_json([{"name": name, "public_key": public} for name, public in known])
        return
    columns = {
        "name": output.Column("name", lambda entry: entry[0]),
        "public_key": output.Column("public_key", lambda entry: entry[1], width_least=64),
    }
    names = output.chosen_fields(style, tuple(columns), tuple(columns))
    output.show_rows(known, [columns[name] for name in names], style, noun="keys")
