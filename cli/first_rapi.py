"""What the remote API needs at the first start of a daemon: a certificate, and a first user.

A daemon has them made by a process of their own (this file with ``-m``): it needs the libraries for
that once, and would keep them in memory for ever.
"""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..storage import errors
from ..storage.access import rapi_settings, rapi_users
from ..storage.disk import paths
from . import output

if TYPE_CHECKING:
    from ..storage.disk.paths import Places

FIRST_USER = "admin"
_SECONDS = 30.0


class FirstCredentials(msgspec.Struct):
    """The credentials that are shown once, when the daemon is ready; ``url`` is known then."""

    name: str
    password: str
    url: str = ""
    problem: str = ""
    """Why nothing listens there, or another program does, if that is so."""

    def __repr__(self) -> str:
        """Without the password, because logs show values."""
        return f"FirstCredentials({self.name!r})"

    def lines(self) -> list[str]:
        """What people see."""
        return [
            f"Remote API: {self.url}" + (f" NOT READY: {self.problem}" if self.problem else ""),
            f"User:       {self.name}",
            f"Password:   {self.password}",
            "The password is shown only now. Further users: ganger rapi user add NAME --role ROLE",
        ]


def text(credentials: FirstCredentials | None) -> str:
    """One line, for another process."""
    return "" if credentials is None else msgspec.json.encode(credentials).decode()


def read(line: str) -> FirstCredentials | None:
    """What `text` has written."""
    return msgspec.json.decode(line, type=FirstCredentials) if line else None


NO_USER = (
    "the remote API has no user, because nobody would see the password here; make one: "
    "ganger rapi user add NAME --role admin --exec"
)


def has_users(places: Places) -> bool:
    """Whether there is a users file."""
    return os.path.lexists(places.rapi_users)


def is_missing(places: Places, *, has_tls: bool, has_user: bool = True) -> bool:
    """Whether there is something to make."""
    has_certificate = not has_tls or os.path.lexists(places.rapi_certificate)
    return not (has_certificate and (has_users(places) or not has_user))


def prepare(
    places: Places, address: str, *, has_tls: bool, has_user: bool = True
) -> FirstCredentials | None:
    """Make what is missing; the first user if there was no users file. `StorageError`."""
    import secrets  # noqa: PLC0415 - only the first start needs these

    from ..storage.access import rapi_certificates, rapi_passwords  # noqa: PLC0415

    if has_tls and not os.path.lexists(places.rapi_certificate):
        names = rapi_certificates.own_names(address)
        days = rapi_settings.CERTIFICATE_DAYS
        rapi_certificates.create(places.rapi_certificate, names, days=days)
    if has_users(places) or not has_user:
        return None
    password = secrets.token_urlsafe(rapi_settings.NEW_PASSWORD_BYTES)
    secret = rapi_passwords.hashed(password)
    # Over a network without TLS, the password is not secret enough for commands.
    is_secret = has_tls or _is_loopback(address)
    options = frozenset({"admin", "exec"} if is_secret else {"admin"})
    rapi_users.add(places.rapi_users, rapi_users.User(FIRST_USER, secret, options))
    return FirstCredentials(FIRST_USER, password)


def _is_loopback(address: str) -> bool:
    """Whether only programs of this machine reach the address. It is never a name."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def prepare_apart(
    places: Places, address: str, *, has_tls: bool, has_user: bool = True
) -> FirstCredentials | None:
    """As `prepare`, in a process of its own. `StorageError` says why it could not."""
    if not is_missing(places, has_tls=has_tls, has_user=has_user):
        return None
    words = [str(places.data), str(places.run), address]
    words += ["tls" if has_tls else "plain", "user" if has_user else "none"]
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "ganger.cli.first_rapi", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise errors.StorageError(f"no certificate and no user could be made: {error}") from error
    if not done.returncode:
        return read(done.stdout.decode().strip())
    problem = done.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
    raise errors.StorageError(problem or f"no user could be made: exit code {done.returncode}")


def forget(places: Places, credentials: FirstCredentials | None) -> None:
    """Take the first user back if the daemon ends before it could show the password."""
    if credentials is not None and not credentials.url:
        with suppress(errors.GangerError, OSError):
            rapi_users.remove(places.rapi_users, credentials.name)
            if not rapi_users.read(places.rapi_users):
                places.rapi_users.unlink()


def _main(*words: str) -> None:
    data, run, address, kind, user = words
    places = paths.Places(Path(data), Path(run))
    try:
        made = prepare(places, address, has_tls=kind == "tls", has_user=user == "user")
    except errors.GangerError as error:
        sys.exit(error.text)
    output.echo(text(made))


if __name__ == "__main__":
    _main(*sys.argv[1:])
