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

BODY_DISCARDED_MAX = 16 * BODY_BYTES_MAX
"""Bytes of a larger body that are read and thrown away, until the connection ends."""

BODY_BYTES_MAX_OF_NOBODY = 64 * 1024
"""The same for somebody who has not said who he is."""

BACKLOG = 128
"""Connections that wait to be accepted."""

CONNECTIONS_MAX = 1_000
"""Most open connections."""

CONNECTIONS_OF_ADDRESS_MAX = 600
"""Most open connections of one address: 500 listeners to events, and some more."""

DESCRIPTORS_OWN = 48
"""Descriptors that the process needs beside its connections: sockets to the daemon, files."""

HEAD_BYTES_MAX = 64 * 1024
"""Longest header of a request."""

HANDSHAKE_SECONDS = 5.0
"""Most time for a TLS handshake."""

HEAD_SECONDS = 10.0
"""Most time for the header of a request; an idle connection is closed after it."""

BODY_SECONDS = 20.0
"""Most time for the body of a request."""

START_SECONDS_MAX = 5.0
"""Longest pause before the process is started again."""

EVENTS_KEPT = 20_000
"""How many events of jobs are kept for those who come back."""

ENDED_KEPT = 5_000
"""How many ended jobs are kept for listings."""

LISTED_BYTES_MAX = 32 * 1024 * 1024
"""Most bytes of JSON of jobs that are kept for the next listing."""

LISTED_AT_ONCE = 500
"""How many jobs are read again with one request."""

TLS_BUFFER_BYTES = 32 * 1024
"""What a connection with TLS reads at once; asyncio keeps this much memory for each."""

PAUSE_SECONDS = 1.0
"""How often the watch of all jobs looks whether the daemon is still there."""

COMMENT_SECONDS = 15.0
"""How often a stream of events says that it is still there."""

UNREAD_SECONDS = 20.0
"""How long a client may read nothing of an answer, before its connection is ended."""

SHUTDOWN_SECONDS = 3_600.0
"""Most time until the end of an answer is read, when the connection ends with it."""

LISTENERS_MAX = 550
"""Most streams of events at once."""

TIMELINE_SECONDS = 3_600
"""How far the timeline looks back."""

TIMELINE_JOBS_MAX = 20_000
"""Most ended jobs of which the timeline remembers spans."""

TIMELINE_ROWS_MAX = 1_000
"""Most jobs in one answer of the timeline."""

TIMELINE_ROWS_DRAWN = 200
"""Of how many jobs an answer of the timeline awaits the causes: as many as the page draws."""

SPANS_MAX = 100
"""Most spans of one job in the timeline."""

LOOKED_AT_SECONDS = 15.0
"""For so long it asks first about jobs that somebody has seen in a list."""

OPCODES_KEPT = 20_000
"""Of how many jobs it remembers the opcodes."""

CHAINED_MAX = 500
"""At so many ended jobs a job's page looks for those that depend on the job."""

PURGED_SHOWN_MAX = 10_000
"""Most purged jobs that one answer names."""

CAUSES_SECONDS = 2.0
"""How often the process asks why jobs wait."""

CAUSES_AT_ONCE = 900
"""For how many jobs that somebody sees it asks at a time: in one request."""

CAUSES_IN_TURN = 20
"""For how many other waiting jobs it asks at a time."""

EXPLAINED_AT_ONCE = 50
"""Of how many jobs that have a process it asks for what they wait: each needs a request."""

CAUSES_AWAITED_SECONDS = 0.5
"""For so long a list waits for the causes that are not known yet."""

USERS_MAX = 10_000
"""Most users."""

USERS_BYTES_MAX = 4 * 1024 * 1024
"""Largest users file."""

PASSWORD_BYTES_MAX = 1_024
"""Longest password."""

ARGON2_PASSES = 2
ARGON2_KIBIBYTES = 19 * 1_024
"""The cost of new hashes: 34 ms of a processor, and 19 MiB while one is compared."""

ARGON2_WORK_MAX = 4 * 1024 * 1024
"""Most kibibytes times passes of a hash in the users file: some seconds."""

BCRYPT_ROUNDS = 12
BCRYPT_ROUNDS_MAX = 15
"""The cost of new hashes, and the highest in the users file: each step doubles it."""

CERTIFICATE_DAYS = 5 * 365
"""How long a new certificate is valid. Source: Ganeti 3.0."""

LOGINS_KNOWN_MAX = 1_000
"""How many credentials are remembered that were right, so that they cost next to nothing."""

LOGINS_WAITING_MAX = 128
"""Most credentials that wait to be compared; further ones are refused for the moment."""

LOGINS_WAITING_OF_ADDRESS_MAX = 32
"""Most of them from one address."""

REFUSALS_LOGGED_MAX = 20
REFUSALS_LOGGED_SECONDS = 60.0
"""So many refused attempts are logged within that time; of further ones only their number."""

NEW_PASSWORD_BYTES = 16
"""Random bytes in a password that Ganger makes: 22 characters."""

WAIT_SECONDS = 10.0
"""Most time that a client waits for a change of a job with one request."""

JOB_ID_DIGITS_MAX = 18
"""Most digits of the id of a job that can exist."""

KEPT_BODIES_MAX = 1_000
"""Of how many jobs that were asked for lately the process keeps the answer."""

KEPT_BODY_BYTES_MAX = 16_384
"""Largest answer that is kept."""
