"""CURVE keys of the remote listener as text files: the daemon's own, and those of its clients.

Has no cryptography: ``transport/zmq`` makes pairs. A file is one comment line, then lines of a
name and a key in 64 hexadecimal digits, which no shell takes for something else::

    # A key of Ganger. The secret is for its owner alone.
    public 54fcba24e93249969316fb617c872bb0c1d1ff14800427c594cbfacf1bc2d652
    secret 8e0bdd697628b91d8f245587ee95c5b04d48963f79259877b49cd9063aead3b7

Earlier versions wrote Z85 (40 characters), the form that libzmq takes: both are read. In a data
directory's ``keys``, ``server.key`` is the daemon's pair and ``clients/NAME.pub`` holds
the public key of one client that may connect. To delete that file revokes the permission for new
connections.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING

import msgspec

from .. import errors
from ..disk import documents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEY_CHARACTERS = 40
"""Length of a key in Z85, the form in which the code has it."""

KNOWN_KEYS_MAX = 10_000
"""Most keys of clients that a daemon reads."""

_COMMENT = "# A key of Ganger. The secret is for its owner alone.\n"
_CLIENT_COMMENT = "# A client of Ganger that may connect to the remote listener.\n"
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_HEX_DIGITS = 64
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_FILE_BYTES_MAX = 4096
_LINE_NAMES = ("public", "secret", "server")


class KeyPair(msgspec.Struct, frozen=True, kw_only=True):
    """A pair of keys; a client's may come with the public key of the daemon it talks to."""

    public: str
    secret: str
    server: str | None = None

    def __repr__(self) -> str:
        """Without the secret, because logs show values."""
        return f"KeyPair(public={self.public!r})"


def create_key(path: Path, pair: KeyPair) -> None:
    """Write ``pair`` into the new file ``path``; `BadRequestError` if the file exists."""
    text = _COMMENT + f"public {to_hex(pair.public)}\nsecret {to_hex(pair.secret)}\n"
    if pair.server is not None:
        text += f"server {to_hex(check_key(pair.server, 'the key of the server'))}\n"
    if not _write_new(path, text):
        raise errors.BadRequestError(f"{path}: exists already; choose another name")


def read_key(path: Path) -> KeyPair:
    """The pair in the file ``path``; `StorageError` if other users may read its secret."""
    lines = _read(path)
    for name in ("public", "secret"):
        if name not in lines:
            raise errors.StorageError(f"{path}: expected a line '{name} KEY'")
    with documents.storage_errors(path):
        if os.stat(path).st_mode & 0o077:
            raise errors.StorageError(f"{path}: others may read this secret; chmod it to 600")
    return KeyPair(public=lines["public"], secret=lines["secret"], server=lines.get("server"))


def read_public_key(path: Path) -> str:
    """The public key in the file ``path``, with or without a secret in the same file."""
    lines = _read(path)
    if "public" not in lines:
        raise errors.StorageError(f"{path}: expected a line 'public KEY'")
    return lines["public"]


def server_pair(keys_directory: Path, make_pair: Callable[[], KeyPair]) -> KeyPair:
    """The daemon's own pair; ``make_pair`` makes it the first time."""
    path = keys_directory / "server.key"
    if not path.exists():
        documents.make_private_directory(keys_directory)
        # Of two processes at once, one creates the file; both read it.
        with contextlib.suppress(errors.BadRequestError):
            create_key(path, make_pair())
    return read_key(path)


def authorise(keys_directory: Path, public_key: str, name: str) -> None:
    """Permit the client with ``public_key`` to connect; ``name`` is for people. Repeatable."""
    public_key = check_key(public_key, "the public key")
    check_name(name)
    path = _client_file(keys_directory, name)
    documents.make_private_directory(keys_directory)
    documents.make_private_directory(path.parent)
    with documents.storage_errors(keys_directory):
        documents.flush_directory(keys_directory.parent)
        documents.flush_directory(keys_directory)
    if _write_new(path, f"{_CLIENT_COMMENT}public {to_hex(public_key)}\n"):
        return
    if read_public_key(path) != public_key:
        raise errors.BadRequestError(f"name {name!r}: another key has this name already ({path})")
    with documents.storage_errors(path):
        # The process that made the file may not have flushed it yet.
        documents.flush_directory(path.parent)


def check_name(name: str) -> None:
    """Raise `BadRequestError` unless a client can be called so."""
    if not _NAME.fullmatch(name):
        text = f"name {name!r}: expected up to 64 letters, digits and . _ @ - (not first)"
        raise errors.BadRequestError(text)


def revoke(keys_directory: Path, name: str) -> None:
    """Take the client's permission back; `BadRequestError` if nobody is called so."""
    check_name(name)
    path = _client_file(keys_directory, name)
    with documents.storage_errors(path):
        try:
            os.unlink(path)
        except FileNotFoundError as error:
            raise errors.BadRequestError(f"no client is called {name!r}") from error
        documents.flush_directory(path.parent)


def known_keys(keys_directory: Path) -> dict[str, str]:
    """The name of each client that may connect, by its public key.

    `StorageError` names the first file without a valid key.
    """
    return {read_public_key(path): path.stem for path in _client_files(keys_directory)}


def name_of(keys_directory: Path, public_key: str) -> str | None:
    """The name of the client with this key, according to the files now; None: it may not connect.

    An unreadable file permits no client, and does not affect the others.
    """
    for path in _client_files(keys_directory):
        with contextlib.suppress(errors.StorageError):
            if read_public_key(path) == public_key:
                return path.stem
    return None


def check_key(text: str, what: str) -> str:
    """The key in this text, in Z85; else `BadRequestError` that begins with ``what``.

    >>> check_key(to_hex("0" * 40), "key") == "0" * 40
    True
    """
    if _HEX.fullmatch(text):
        return _from_hex(text)
    if len(text) != KEY_CHARACTERS or not all(map(_is_word, _words(text))):
        raise errors.BadRequestError(f"{what}: expected {_HEX_DIGITS} hexadecimal digits")
    return text


def to_hex(key: str) -> str:
    """A key in Z85 as people see it."""
    return "".join(f"{_value(word):08x}" for word in _words(key))


def _from_hex(digits: str) -> str:
    text = ""
    for start in range(0, _HEX_DIGITS, 8):
        value, word = int(digits[start : start + 8], 16), ""
        for _ in range(5):
            value, digit = divmod(value, 85)
            word = _ALPHABET[digit] + word
        text += word
    return text


def _words(text: str) -> Iterator[str]:
    return (text[start : start + 5] for start in range(0, len(text), 5))


def _is_word(word: str) -> bool:
    # Five digits of base 85 can exceed the 32 bits that they encode.
    return all(character in _ALPHABET for character in word) and _value(word) < 2**32


def _value(word: str) -> int:
    value = 0
    for character in word:
        value = value * 85 + _ALPHABET.index(character)
    return value


def _client_file(keys_directory: Path, name: str) -> Path:
    return keys_directory / "clients" / f"{name}.pub"


def _client_files(keys_directory: Path) -> list[Path]:
    directory = keys_directory / "clients"
    names = documents.names_in(directory)
    wanted = [name for name in names if name.endswith(".pub") and not name.startswith(".")]
    return [directory / name for name in wanted[:KNOWN_KEYS_MAX]]


def _read(path: Path) -> dict[str, str]:
    with documents.storage_errors(path):
        if os.stat(path).st_size > _FILE_BYTES_MAX:
            raise errors.StorageError(f"{path}: too large for a key file")
    data = documents.read(path)
    if data is None:
        raise errors.StorageError(f"{path}: there is no such file")
    lines: dict[str, str] = {}
    for number, line in enumerate(data.decode("ascii", "replace").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, key = line.partition(" ")
        if name not in _LINE_NAMES or name in lines:
            names = ", ".join(_LINE_NAMES)
            raise errors.StorageError(f"{path}: line {number}: expected each of {names} once")
        try:
            lines[name] = check_key(key.strip(), f"{path}: line {number}")
        except errors.BadRequestError as error:
            raise errors.StorageError(error.text) from error
    return lines


def _write_new(path: Path, text: str) -> bool:
    """Create ``path`` with ``text`` in it, entirely or not at all; False if it exists."""
    path = path.absolute()
    temporary = path.with_name(f"{documents.TEMPORARY_PREFIX}{path.name}.{os.getpid()}")
    with documents.storage_errors(path):
        try:
            data = text.encode("ascii")
            documents.replace(temporary, data, flush=True, mode=documents.SECRET_MODE)
            # A link, unlike a rename, refuses to replace what is there.
            os.link(temporary, path)
        except FileExistsError:
            return False
        except errors.StorageError as error:
            # The user has named this file, and not the one that would become it.
            text = error.text.replace(os.fspath(temporary), os.fspath(path))
            raise errors.StorageError(text) from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        try:
            documents.flush_directory(path.parent)
        except OSError:
            # The next attempt must not find a file that a power loss can take away.
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
    return True
