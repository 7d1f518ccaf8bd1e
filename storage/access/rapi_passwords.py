"""Secrets of the users of the remote API: made and compared. The only file with argon2 and bcrypt.

A secret is a password in clear, or stands behind the name of its scheme in braces::

    {ARGON2ID}$argon2id$v=19$m=19456,t=2,p=1$...    made for new users
    {BCRYPT}$2b$12$...                              also made; what htpasswd -B makes is taken too
    {HA1}...                                        Ganeti's: MD5 of NAME:REALM:PASSWORD
    {CLEARTEXT}...                                  Ganeti's: the password

The libraries are imported when the first hash of their kind is made or compared.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

from . import rapi_settings

REALM = "Ganeti Remote API"
"""What credentials are for; part of what {HA1} hashes."""

NEW_SCHEMES = ("argon2id", "bcrypt")
"""How a new password may be stored."""

CLEARTEXT, HA1, BCRYPT, ARGON2ID = "{CLEARTEXT}", "{HA1}", "{BCRYPT}", "{ARGON2ID}"

_HA1_HASH = re.compile(r"[0-9a-fA-F]{32}")
_BCRYPT_HASH = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")
_ARGON2_HASH = re.compile(
    r"\$argon2id\$v=19\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,4})\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{16,}"
)
_BCRYPT_BYTES_MAX = 72
"""bcrypt has always ignored what is behind that."""


def split(secret: str) -> tuple[str, str]:
    """Scheme, in upper case, and what stands behind it. Source: Ganeti 3.0, RAPI.

    >>> split("{Ha1}77"), split("plain"), split("{}")
    (('{HA1}', '77'), ('{CLEARTEXT}', 'plain'), ('{}', ''))
    """
    if not secret.startswith("{"):
        return CLEARTEXT, secret
    scheme, mark, rest = secret.partition("}")
    return (scheme + mark).upper(), rest


def is_known(secret: str) -> bool:
    """Whether the scheme is known. One that is not never matches, as in Ganeti."""
    return split(secret)[0] in {CLEARTEXT, HA1, BCRYPT, ARGON2ID}


def is_readable(secret: str) -> bool:
    """Whether who reads the file can use the secret: in clear, or a plain MD5."""
    return split(secret)[0] in {CLEARTEXT, HA1}


def is_costly(secret: str) -> bool:
    """Whether a comparison takes so long that others must be served meanwhile."""
    return split(secret)[0] in {BCRYPT, ARGON2ID}


def problem(secret: str) -> str:
    """Why nothing can be compared with this secret; empty if it can, or its scheme is unknown."""
    scheme, rest = split(secret)
    if scheme == HA1 and not _HA1_HASH.fullmatch(rest):
        return "{HA1} needs 32 hexadecimal digits"
    if scheme == BCRYPT:
        found = _BCRYPT_HASH.fullmatch(rest)
        if not found:
            return "{BCRYPT} needs a hash such as $2b$12$..."
        if int(found[1]) > rapi_settings.BCRYPT_ROUNDS_MAX:
            return f"{{BCRYPT}} may have a cost of at most {rapi_settings.BCRYPT_ROUNDS_MAX}"
    if scheme == ARGON2ID:
        found = _ARGON2_HASH.fullmatch(rest)
        if not found:
            return "{ARGON2ID} needs a hash such as $argon2id$v=19$m=19456,t=2,p=1$..."
        if int(found[1]) * int(found[2]) > rapi_settings.ARGON2_WORK_MAX:
            most = rapi_settings.ARGON2_WORK_MAX
            return f"{{ARGON2ID}} may have m * t of at most {most}"
    return ""


def hashed(password: str, scheme: str = NEW_SCHEMES[0]) -> str:
    """The secret for a new password. ``scheme``: one of `NEW_SCHEMES`.

    >>> matches(hashed("hard to guess"), "joe", "hard to guess")
    True
    """
    if scheme == "bcrypt":
        import bcrypt  # noqa: PLC0415

        salt = bcrypt.gensalt(rapi_settings.BCRYPT_ROUNDS)
        return BCRYPT + bcrypt.hashpw(_cut(password), salt).decode()
    import argon2  # noqa: PLC0415

    hasher = argon2.PasswordHasher(
        time_cost=rapi_settings.ARGON2_PASSES,
        memory_cost=rapi_settings.ARGON2_KIBIBYTES,
        parallelism=1,
    )
    return ARGON2ID + hasher.hash(password)


def matches(secret: str, name: str, password: str) -> bool:
    """Whether this is the user's password. Takes its time: see `is_costly`."""
    scheme, rest = split(secret)
    if scheme == CLEARTEXT:
        return hmac.compare_digest(rest.encode(), password.encode())
    if scheme == HA1:
        text = f"{name}:{REALM}:{password}"
        made = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
        return hmac.compare_digest(rest.lower(), made)
    if scheme == BCRYPT:
        import bcrypt  # noqa: PLC0415

        try:
            return bcrypt.checkpw(_cut(password), rest.encode())
        except ValueError:
            # It looks like a hash, but none begins so.
            return False
    if scheme == ARGON2ID:
        import argon2  # noqa: PLC0415

        try:
            return argon2.PasswordHasher().verify(rest, password)
        except argon2.exceptions.VerificationError:
            return False
    return False


def unmatched() -> str:
    """A secret of the kind of new ones that no password is known for."""
    salt, digest = (base64.b64encode(bytes(size)).decode().rstrip("=") for size in (16, 32))
    cost = f"m={rapi_settings.ARGON2_KIBIBYTES},t={rapi_settings.ARGON2_PASSES},p=1"
    return f"{ARGON2ID}$argon2id$v=19${cost}${salt}${digest}"


def _cut(password: str) -> bytes:
    return password.encode()[:_BCRYPT_BYTES_MAX]
