"""Limits and defaults of the remote API, each with a name and its unit."""

from __future__ import annotations

PORT = 5080
"""Ganeti's port for its remote API."""

PORTS_TRIED = 100
"""How many ports are tried, from `PORT` on, if nobody has named one."""

ADDRESS = "127.0.0.1"
"""Where to listen by default: programs of this machine only."""

BODY_BYTES_MAX = 4 * 1024 * 1024
"""Largest body of a request: that of the largest job (`settings.JOB_SUBMITTED_BYTES_MAX`)."""

BACKLOG = 128
"""Connections that wait to be accepted."""

CONNECTIONS_MAX = 1_000
"""Most open connections."""

CONNECTIONS_OF_ADDRESS_MAX = 600
"""Most open connections of one address: 500 listeners to events, and some more."""

HANDSHAKE_SECONDS = 5.0
"""Most time for a TLS handshake."""

HEAD_SECONDS = 10.0
"""Most time for the header of a request; an idle connection is closed after it."""

BODY_SECONDS = 20.0
"""Most time for the body of a request."""

START_SECONDS_MAX = 5.0
"""Longest pause before the process is started again."""
