"""How a daemon serves the remote API."""

from __future__ import annotations

import msgspec

from ...storage.access import rapi_settings


class RapiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the daemon serves the remote API. ``port`` None: the first free one from 5080 on."""

    address: str = rapi_settings.ADDRESS
    port: int | None = None
    is_authentication_required: bool = True
    has_tls: bool = True
    hosts: tuple[str, ...] = ()
    """Further names by which clients ask for the server."""
