"""The line with which a host joins: where the masters are, their key, and a secret for one use.

The secret is a pair of CURVE keys that the master knows for an hour. So a host proves over an
encrypted connection that it was invited, and no password travels. A checksum tells a damaged token
before anything is sent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

import msgspec

from .. import errors

_PREFIX = "gnj1."
_CHECKSUM_BYTES = 6
_DAMAGED = "the token is damaged: copy the whole line that `ganger node invite` has printed"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What a host needs to join. ``until``: seconds since the epoch, on the master's clock."""

    cluster: str
    """The cluster's UUID."""

    cluster_name: str
    node: str
    endpoints: list[str]
    """Where the masters listen, such as ``tcp://10.0.0.1:7611``."""

    server: str
    """The masters' public key (Z85)."""

    public: str
    secret: str
    until: float

    def __repr__(self) -> str:
        """Without the secret, because logs show values."""
        return f"Token(node={self.node!r}, cluster={self.cluster!r})"


def encode(token: Token) -> str:
    """The token as one word that no shell takes for something else."""
    data = msgspec.msgpack.encode(token)
    return _PREFIX + base64.urlsafe_b64encode(_checksum(data) + data).decode().rstrip("=")


def decode(text: str) -> Token:
    """The token of this word; `BadRequestError` if it is none, or was altered."""
    word = "".join(text.split())
    if not word.startswith(_PREFIX):
        kind = _PREFIX.rstrip(".")
        raise errors.BadRequestError(f"the token does not begin with {kind}: {word[:20]!r}")
    body = word.removeprefix(_PREFIX)
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        if data[:_CHECKSUM_BYTES] != _checksum(data[_CHECKSUM_BYTES:]):
            raise errors.BadRequestError(_DAMAGED)
        return msgspec.msgpack.decode(data[_CHECKSUM_BYTES:], type=Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise errors.BadRequestError(_DAMAGED) from error


def _checksum(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_CHECKSUM_BYTES]
