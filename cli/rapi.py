"""``ganger rapi``: the certificate and the users of the remote API."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING

import click

from ..storage import errors
from ..storage.access import rapi_settings, rapi_users
from ..storage.access.rapi_users import User
from ..storage.disk import documents, ownership
from ..storage.opcodes import catalogue
from . import choices, output

if TYPE_CHECKING:
    from .call import Call

_SCHEMES = ("argon2id", "bcrypt")


@click.group()
def rapi() -> None:
    """Make the certificate, and keep the users, of the remote API."""


@rapi.command(short_help="Make a self-signed certificate.")
@click.option(
    "--name",
    "names",
    metavar="HOST",
    multiple=True,
    help="A host name or address by which clients call this machine. May be repeated; without it: "
    "localhost, its addresses, and this machine's name.",
)
@click.option(
    "--days",
    type=choices.WholeRange(1, 36_500),
    default=rapi_settings.CERTIFICATE_DAYS,
    show_default=True,
    help="How long it is valid.",
)
@click.option("--force", is_flag=True, help="Replace the one that is there.")
@click.pass_obj
def cert(call: Call, *, names: tuple[str, ...], days: int, force: bool) -> None:
    """Make a key and a self-signed certificate (rapi.pem in the data directory).

    A daemon that runs uses it at once, for new connections. Clients need the certificate, or its
    fingerprint, to know the daemon.
    """
    from ..storage.access import rapi_certificates  # noqa: PLC0415 - costs more than most commands

    places = call.places
    ownership.require_own(places, "rapi cert")
    documents.make_data_directory(places.data)
    path = places.rapi_certificate
    if path.exists() and not force:
        raise errors.BadRequestError(f"{path}: exists already; to replace it: --force")
    chosen = list(names) or rapi_certificates.own_names()
    made = rapi_certificates.create(path, chosen, days=days, is_replaced=force)
    output.echo(f"{path}: for {', '.join(made.names)}; valid until {made.valid_until}")
    output.echo(f"SHA-256 fingerprint: {made.fingerprint}")


@rapi.group(short_help="Add, list, change and remove users.")
def user() -> None:
    """Add, list, change and remove the users of the remote API."""


@user.command(short_help="Add a user, with a role.")
@click.argument("name", type=choices.Text())
@click.option(
    "--role",
    type=click.Choice(rapi_users.ROLES),
    required=True,
    help="read: look at everything. operate: also submit and cancel jobs with the opcodes of "
    "--opcode, and keep filter rules for them. admin: everything but commands.",
)
@click.option(
    "--password",
    metavar="PASSWORD",
    type=choices.Text(),
    help="Other users of the machine may see it while this runs; `-` reads it from standard "
    "input. Without it, a new one is made and printed.",
)
@click.option(
    "--opcode",
    "opcodes",
    metavar="OP_ID",
    multiple=True,
    help="An opcode that a user with the role operate may submit. May be repeated.",
)
@click.option(
    "--exec",
    "is_exec",
    is_flag=True,
    help="The user may run commands (OP_EXEC) as the daemon's user.",
)
@click.option(
    "--scheme",
    type=click.Choice(_SCHEMES),
    default=_SCHEMES[0],
    show_default=True,
    help="How the password is hashed.",
)
@click.option("--replace", is_flag=True, help="Change the user who is there.")
@click.pass_obj
def add(
    call: Call,
    name: str,
    *,
    role: str,
    password: str | None,
    opcodes: tuple[str, ...],
    is_exec: bool,
    scheme: str,
    replace: bool,
) -> None:
    """Add the user NAME. A daemon that runs knows the user at once."""
    from ..storage.access import rapi_passwords  # noqa: PLC0415

    places = call.places
    ownership.require_own(places, f"rapi user add {name} --role {role}")
    options = frozenset({role, *(["exec"] if is_exec else [])})
    _check_role(User(name, options=options, opcodes=frozenset(opcodes)), opcodes)
    given = _given(password)
    rapi_users.require_new_name(name)
    chosen = given or secrets.token_urlsafe(rapi_settings.NEW_PASSWORD_BYTES)
    if name in _known(call) and not replace:
        raise errors.BadRequestError(f"there is a user {name} already; to change it: --replace")
    documents.make_data_directory(places.data)
    entry = User(name, rapi_passwords.hashed(chosen, scheme), options, frozenset(opcodes))
    rapi_users.add(places.rapi_users, entry, is_replaced=replace)
    if given is None:
        output.echo(f"Password of {name}: {chosen}")
        output.echo("It is shown only now.", err=True)
    else:
        output.echo(f"Added {name}")


@user.command(short_help="Give a user other rights.")
@click.argument("name", type=choices.Text())
@click.option("--role", type=click.Choice(rapi_users.ROLES), help="As of `ganger rapi user add`.")
@click.option(
    "--opcode",
    "opcodes",
    metavar="OP_ID",
    multiple=True,
    help="A further opcode that a user with the role operate may submit. May be repeated.",
)
@click.option(
    "--exec/--no-exec",
    "is_exec",
    default=None,
    help="The user may run commands (OP_EXEC) as the daemon's user; or no longer.",
)
@click.pass_obj
def change(
    call: Call, name: str, *, role: str | None, opcodes: tuple[str, ...], is_exec: bool | None
) -> None:
    """Give the user NAME other rights; the password stays.

    A daemon that runs knows them at once.
    """
    places = call.places
    ownership.require_own(places, f"rapi user change {name}")
    if role is None and not opcodes and is_exec is None:
        raise errors.UsageError("say what changes: --role, --opcode, --exec or --no-exec")
    found = _known(call).get(name)
    if found is None:
        raise errors.BadRequestError(f"there is no user {name}")
    options = found.options if role is None else (found.options & {"exec"}) | {role}
    if is_exec is not None:
        options = options | {"exec"} if is_exec else options - {"exec"}
    kept = found.opcodes if "operate" in options else frozenset()
    changed = User(name, found.secret, frozenset(options), kept | frozenset(opcodes))
    _check_role(changed, opcodes)
    rapi_users.add(places.rapi_users, changed, is_replaced=True)
    shown = changed.line.removeprefix(f"{name} {found.secret}").strip() or "read"
    output.echo(f"{name}: {shown}")


def _check_role(user: User, opcodes: tuple[str, ...]) -> None:
    """`UsageError` for rights that have no meaning together."""
    if "operate" in user.options:
        if not user.opcodes and "exec" not in user.options:
            raise errors.UsageError("--role operate: name the opcodes with --opcode, or --exec")
    elif opcodes:
        raise errors.UsageError("--opcode: has a meaning with --role operate only")
    if "exec" in user.options and not user.options & {"operate", "admin", "write"}:
        raise errors.UsageError("--exec: has no meaning with --role read; --role operate submits")
    _check_known(opcodes)


@user.command("list")
@output.style_options
@click.pass_obj
def list_users(call: Call, style: output.Style) -> None:
    """List the users, with their rights."""
    from ..storage.access import rapi_passwords  # noqa: PLC0415

    found = sorted(_known(call).values(), key=lambda each: each.name)
    rows = [
        {
            "name": each.name,
            "options": sorted(each.options),
            "opcodes": sorted(each.opcodes),
            "scheme": rapi_passwords.split(each.secret)[0].strip("{}").lower(),
        }
        for each in found
    ]
    if style.output == "json":
        output.show_json(rows)
        return
    columns = {
        "name": output.Column("name", lambda row: row["name"]),
        "options": output.Column("options", lambda row: ",".join(row["options"]) or "-"),
        "opcodes": output.Column("opcodes", lambda row: ",".join(row["opcodes"]) or "-"),
        "scheme": output.Column("scheme", lambda row: row["scheme"]),
    }
    names = output.chosen_fields(style, tuple(columns), tuple(columns))
    output.show_rows(rows, [columns[name] for name in names], style, noun="users")


@user.command()
@click.argument("name", type=choices.Text())
@click.pass_obj
def remove(call: Call, name: str) -> None:
    """Remove the user NAME. A daemon that runs knows it at once."""
    places = call.places
    ownership.require_own(places, f"rapi user remove {name}")
    rapi_users.remove(places.rapi_users, name)
    output.echo(f"Removed {name}")


def _known(call: Call) -> dict[str, User]:
    path = call.places.rapi_users
    ownership.require_readable(path)
    return {found.name: found for found in rapi_users.read(path).values()}


def _check_known(opcodes: tuple[str, ...]) -> None:
    """`UsageError` for an opcode that is not installed."""
    if not opcodes:
        return
    catalogue.load_user_opcodes()
    for opcode in opcodes:
        if catalogue.find(opcode) is None:
            raise errors.UsageError(f"--opcode: there is no opcode {opcode!r}")


def _given(password: str | None) -> str | None:
    """The password that the user gave; `UsageError` if it cannot be one."""
    if password is None:
        return None
    if password == "-":  # noqa: S105 - not a password
        password = sys.stdin.readline().removesuffix("\n")
    if not password or not password.isprintable():
        raise errors.UsageError("--password: is empty, or has control characters")
    if len(password.encode()) > rapi_settings.PASSWORD_BYTES_MAX:
        most = rapi_settings.PASSWORD_BYTES_MAX
        raise errors.UsageError(f"--password: longer than {most} bytes")
    return password
