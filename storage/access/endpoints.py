"""Which words are endpoints of the network: ``tcp://HOST:PORT``. Pure."""

from __future__ import annotations

import re

_PORT_MAX = 65_535


def problem(text: str, *, is_listening: bool) -> str:
    """What is wrong with it, or "". A listener may have ``*``, or 0, for any free port.

    ZeroMQ itself takes a port that is too high for another one.
    """
    found = re.fullmatch(r"tcp://([^/\s]+):(\d{1,5}|\*)", text, re.ASCII)
    if found is not None:
        number = 0 if found[2] == "*" else int(found[2])
        host = found[1]
        if number <= _PORT_MAX and (":" not in host or host[0] + host[-1] == "[]"):
            if is_listening or (number and host not in ("0.0.0.0", "[::]", "*")):  # noqa: S104 - refused
                return ""
            return f"expected an address and a port at which hosts can call, got {text!r}"
    return f"expected tcp://HOST:PORT, a port up to {_PORT_MAX}, got {text!r}"
