"""Looks whether uvicorn and asyncio have what `guards` needs of them and neither documents.

A hook that is not called any more would be a deadline or a limit that nobody keeps, and no request
would tell. So the process of the remote API looks before it serves.
"""

from __future__ import annotations

from asyncio import sslproto
from importlib import metadata
from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from ..storage import errors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NEEDED: Final[Mapping[str, Collection[str]]] = {
    "__init__": ("conn", "loop", "server_state"),
    "connection_made": ("transport",),
    "connection_lost": (),
    "data_received": ("handle_events",),
    "handle_events": ("send_400_response", "on_response_complete"),
    "on_response_complete": ("timeout_keep_alive_handler",),
    "send_400_response": (),
    "timeout_keep_alive_handler": ("transport",),
    "pause_writing": (),
    "resume_writing": (),
}
"""Methods of uvicorn's protocol that are overridden or relied on, and what each must use itself."""

TLS_SIZE: Final = "max_size"


def require(protocol: type = H11Protocol, tls: type = sslproto.SSLProtocol) -> None:
    """Raise `OperatorError` unless everything is there."""
    missing = [
        f"{name}{f' using {used}' if used else ''}"
        for name, uses in NEEDED.items()
        for used in ("", *uses)
        if not _has(protocol, name, used)
    ]
    if missing:
        raise errors.OperatorError(
            f"uvicorn {metadata.version('uvicorn')} lacks what the remote API builds on "
            f"({', '.join(missing)}); install a version that Ganger's requirements allow"
        )
    if not hasattr(tls, TLS_SIZE):
        raise errors.OperatorError(f"asyncio's TLS lacks {TLS_SIZE}, which limits its memory")


def _has(protocol: type, name: str, used: str) -> bool:
    code = getattr(protocol.__dict__.get(name), "__code__", None)
    return code is not None and (not used or used in code.co_names)
