"""Requests that a page of another site has a browser send, with credentials it keeps. Pure.

A browser that was asked for a password sends it with every request, also with one that another
site's page makes. Such a request must not change anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_OWN_SITES = frozenset({"same-origin", "none"})
"""A page of this server, or the user himself."""


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site sends this request. Programs that are no browsers never do.

    >>> is_foreign({"sec-fetch-site": "cross-site"}), is_foreign({"sec-fetch-site": "same-origin"})
    (True, False)
    >>> is_foreign({"origin": "https://a:1", "host": "b:1"}), is_foreign({"host": "b:1"})
    (True, False)
    """
    site = headers.get("sec-fetch-site")
    if site:
        return site not in _OWN_SITES
    origin = headers.get("origin")
    if not origin:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True
