"""The names by which clients may ask for this server: what the header Host may say. Pure.

A page of another site may give its own name our address (DNS rebinding). For a browser that page
and this server are then one site, but the browser still says the name. An address in Host can only
be the one that the browser has connected to, so every address is fine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

_OWN_DOMAIN = "localhost"
"""It, and every name below it, is this machine. Source: RFC 6761, section 6.3."""

SHOWN_MAX = 80


class Hosts:
    """Knows the names of this server, beside its addresses and ``localhost``."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._settled = frozenset(map(_plain, names))
        self._of_certificate: frozenset[str] = frozenset()

    def certify(self, names: Iterable[str]) -> None:
        """Take these names of a new certificate in place of those of the old one."""
        self._of_certificate = frozenset(map(_plain, names))

    def refusal(self, header: str) -> str | None:
        """Why a request with this header is refused; None if it is not.

        >>> Hosts(["rapi.example.com"]).refusal("rapi.example.com:5080")
        >>> Hosts().refusal("[::1]:5080")
        >>> Hosts().refusal("evil.example")[:34]
        'The name evil.example in Host is n'
        """
        name = _name(header)
        if name is not None and self._knows(name):
            return None
        shown = (header if name is None else name)[:SHOWN_MAX]
        return (
            f"The name {shown} in Host is none of this server's: add it with "
            "'ganger up --rapi-host NAME', or use a name of the certificate, or an address"
        )

    def _knows(self, name: str) -> bool:
        if _is_address(name) or name == _OWN_DOMAIN or name.endswith(f".{_OWN_DOMAIN}"):
            return True
        known = self._settled | self._of_certificate
        return name in known or f"*.{name.partition('.')[2]}" in known


def _name(header: str) -> str | None:
    """The name or address without the port; None if the header has no such form."""
    if set(header) & set("/?#@\\") or not header.isascii():
        return None
    try:
        parts = urlsplit(f"//{header}")
        found, _ = parts.hostname, parts.port
    except ValueError:
        return None
    return _plain(found) if found else None


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
