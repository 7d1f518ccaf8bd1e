"""Every limit, default and place, each with a name and its unit. Holds no logic but path rules."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

FRAME_BYTES_MAX = 8 * 1024 * 1024
"""Largest frame accepted on any door."""

FRAME_ITEMS_MAX = 200_000
"""Most elements of one array or map in a frame."""

FRAME_CONTAINERS_MAX = 400_000
"""Most arrays and maps in a frame: each takes many times its one byte when it is read."""

FRAMES_BYTES_OPEN_MAX = FRAME_BYTES_MAX // 8
"""Bytes of frames that components are at, above which no further ones are read."""

SMALL_FRAME_BYTES = 1_024
"""Frames up to this size are only counted (`MAILBOX_DEPTH_MAX`, `REQUESTS_OPEN_MAX`)."""

JOB_ID_JUMP_MAX = 10**12
"""How far a mere name may lie above every id that is vouched for, and still count as given.

More than a queue gives in thirty years at a thousand jobs a second: whoever put a file of such a
name there did not get the number from this queue.
"""

JOBS_PER_SUBMIT_MAX = 20_000
"""Most jobs in one submission."""

OPCODES_PER_JOB_MAX = 1_000
"""Most opcodes in one job."""

JOB_BYTES_MAX = FRAME_BYTES_MAX - 1024 * 1024
"""Largest stored form of a job, which is the JSON text of its file: it fits into a frame."""

JOB_SUBMITTED_BYTES_MAX = FRAME_BYTES_MAX // 2
"""Largest stored form of a job when it is submitted, with its secrets."""

JOB_LOG_BYTES_MAX = 3 * FRAME_BYTES_MAX // 16
"""Most of the stored form for the log of a job, all its opcodes together."""

JOB_LOG_RESERVE_BYTES = FRAME_BYTES_MAX // 64
"""Most for what a job's process itself logs when the log is full."""

JOB_END_BYTES_MAX = FRAME_BYTES_MAX // 8
"""Most for time stamps, statuses and the texts with which opcodes end."""

ERROR_RESULT_BYTES_MAX = FRAME_BYTES_MAX // 64
"""Most for the result of the opcode with which a job fails; there is room for it in any case."""

STORED_DEPTH_MAX = 100
"""Deepest nesting of a result, or of an entry of a log: whoever reads the job must get through."""

TRACEBACK_BYTES_MAX = 16 * 1024
"""How much of the traceback of an operation that failed is logged: its end."""

INPUT_INLINE_BYTES_MAX = 16 * 1024
"""Standard input larger than this as JSON lies in a file of its own beside the job."""

SUMMARY_BYTES_MAX = 400
"""Longest summary, and longest reason, of a job in a listing; a page of them fits into a frame."""

RETRIES_NOTED_MAX = 1_000
"""How many of the jobs that repeat it a job names: the newest."""

START_ATTEMPTS_MAX = 10
"""How often a job is started in a row whose process ends before it begins."""

LIST_PAGE_ROWS = 5_000
"""Most rows in one reply to a listing; clients ask for the next page."""

MAILBOX_DEPTH_MAX = 50_000
"""Messages waiting in an actor's mailbox above which listeners refuse new work."""

TURN_MESSAGES_MAX = 256
"""Most messages an actor handles before its turn ends (group commit, writes of files)."""

DESCRIPTORS_MAX = 65_536
"""Descriptors that a daemon takes if the system lets it; it has no use for more."""

DESCRIPTORS_MIN = 128
"""Descriptors without which no daemon starts."""

DESCRIPTORS_REMOTE_MIN = 4_096
"""Descriptors without which there is no remote door: many may come in before they are counted."""

DESCRIPTORS_OWN = 48
"""Descriptors for what the daemon itself has open: its sockets, the journal, a few files."""

DESCRIPTORS_PER_JOB = 3
"""Descriptors of a run slot: the job's channel, for a moment both ends of it, and its process."""

PEERS_MAX = 1_000
"""Connections at one door above which further ones are told that there are too many."""

LISTENER_DESCRIPTORS_MAX = 2_200
"""Most descriptors of one door, whatever became of the handshakes; above, the door is deaf."""

ACCEPTED_AT_ONCE = 32
"""Most local connections that are let in before they are counted."""

ACCEPTED_UNSEEN_MAX = 1_100
"""Remote connections that may come in before they are counted: libzmq stops after 1,001 events
that nobody has read."""

UNHEARD_SECONDS = 1.0
"""How long a connection may say nothing while its door is full."""

RUNNING_JOBS_MAX = 20
"""Run slots, unless the configuration says otherwise (Ganeti's ``max_running_jobs``)."""

TRACKED_JOBS_MAX = 25
"""Kept in the configuration for Ganeti's clients (``max_tracked_jobs``)."""

SPARE_CHILDREN = 10
"""Children a fork server keeps ready."""

ENDED_CHILDREN_KEPT = 256
"""Of how many children that have ended, the last ones, a fork server remembers how."""

STATUS_SECONDS = 1.0
"""How long a fork server may take to tell how a process has ended."""

SPARE_CHILDREN_LEFT = 1
"""Spare children left when a fork server makes new ones: many in a row cost less each."""

SPARE_CHILDREN_WARM = 3
"""Of them, those that warm up: the next in line. A warm one has 2 MB for itself."""

WARM_UP_SECONDS = 0.01
"""Quiet after which a fork server lets one more spare child warm up."""

HAND_OVER_SECONDS = 30.0
"""How long a child may take to tell its lock file's name."""

CLIENT_DEADLINE_SECONDS = 30.0
"""Deadline of a client's call, unless it gives its own."""

CLIENT_HEARTBEAT_SECONDS = 5.0
"""Silence on a watch after which the client asks whether the daemon is there."""

WATCHERS_MAX = 1_000
"""Most watches open at one time."""

KEY_BYTES_MAX = 200
"""Longest idempotency key."""

JOURNAL_SEGMENT_BYTES = 16 * 1024 * 1024
"""Size at which the journal goes on in a new segment."""

JOURNAL_SEGMENTS_FACTOR_MAX = 8
"""How many times that size a segment may have before files are written whatever else waits."""

JOURNAL_RESERVE_BYTES = 512 * 1024
"""How much of a journal segment is filled with zeros ahead of its records."""

JOURNALED_STATE_BYTES_MAX = 64 * 1024
"""A job state above this is flushed by its process instead of sharing the journal's flush."""

AUTOARCHIVE_JOBS_MAX = 10_000
"""Most jobs archived by one request; the reply says how many are left."""

DISK_RETRY_SECONDS = 1.0
"""How long after a refused write the disk is tried again."""

DISK_RETRY_FACTOR_MAX = 8
"""How many times as long it may be when flushes fail again and again, which makes each try dear."""

QUESTIONS_MAX = 1_000
"""Most questions about the daemon's state that may be open."""

REQUESTS_OPEN_MAX = 100_000
"""Most requests of clients that may be unanswered; above, new ones are refused."""

REQUESTS_OPEN_PER_PEER_MAX = 20_000
"""Most of them on one connection, so that it does not use up what all have."""

REQUESTS_COUNTED_SECONDS = 0.1
"""How often the unanswered requests of each connection are counted, when there are many."""

SWITCH_INTERVAL_SECONDS = 0.0005
"""How long a thread of the daemon may keep the interpreter while another waits."""

WINDOW_LOOK_SECONDS = 30.0
"""Longest wait until the windows of filter rules are compared with the clock again."""

FILES_AT_ONCE = 10
"""How many files of new jobs are written after a rest; what comes goes before the next."""

FILES_PER_TURN = 2
"""How many are written after each turn while many are missing, though messages wait."""

FILES_SLICE_SECONDS = 0.005
"""How long files of new jobs are written before the queue looks for messages again, at most."""

FILES_SLICE_MAX = 100
"""How many of them are written at most before it looks."""

FILES_REST_SECONDS = 0.01
"""How long nothing must have come to the queue before files of new jobs are written."""

FILES_UNWRITTEN_MAX = 1_000
"""How many new jobs may have no file but the journal; above, some are written all the same."""

JUDGE_STEPS_MAX = 2**30
"""Most steps (`storage/metering`) to judge one job by the filter rules: some seconds. A job that
takes more is held."""

JUDGE_STEPS_AT_ONCE = 2**26
"""Steps after which judging is interrupted for others: about a tenth of a second."""

ADMISSION_STEPS_MAX = 2**24
"""Most steps to judge a submission before it is stored; what is left is judged afterwards."""

ADMISSION_STEPS_PER_JOB = 2**16
"""By how much that limit grows with each job of the submission: some hundred rules."""

JOB_READ_STEPS = 2**16
"""What it costs to read a job's file before it is judged, in steps."""

SWEEP_JOBS = 200
"""How many pending jobs are sent at a time to be judged under new rules."""

LOG_CLOSE_SECONDS = 2.0
"""How long the last lines of the log may take when the daemon ends."""

KILL_SECONDS = 10.0
"""Between asking a job to end that is to be killed, and ending its process."""

COLLECTOR_THRESHOLDS = (10_000, 5, 1_000)
"""When the daemon looks for garbage that reference counts do not free (`gc.set_threshold`).

Each look stops every thread: the first two kinds are short, and the third is rare.
"""

LOG_WRITE_INTERVAL_SECONDS = 0.25
"""Least time between two writes of a job file for log lines alone."""

OUTPUT_BYTES_MAX = 1024 * 1024 * 1024
"""Output of one opcode that is kept, before compression, unless the opcode says otherwise."""

OUTPUT_WRITE_SECONDS = 0.02
"""Least time between two writes of a job's output, and between two words to its followers."""

OUTPUT_PAGE_BYTES = 1024 * 1024
"""Most stored output in one reply: at least two blocks of it (`output_blocks`)."""

OUTPUT_WAIT_SECONDS_MAX = 10.0
"""How long a follower's question waits for more output; then it is asked again."""

OUTPUT_WAITS_MAX = 10_000
"""Most questions that wait for more output at one time."""

TEMPORARY_REST_SECONDS = 1.0
"""How long a replaced file's inode rests before it is written again."""

SPARE_INODES_MAX = 4_096
"""Most replaced files kept to be written again."""

SPARE_KEEP_SECONDS = 60.0
"""How long one of them may lie unused before it is deleted."""

SPARES_PER_JOB = 2
"""Spare files lent to a job's process: one for ``running``, one for the end."""

STOP_SECONDS = 10.0
"""How long the tree may take to stop before it is stopped by force."""

WATCHDOG_SECONDS = 1.0
"""How often the daemon looks whether each of its components gets on."""

HUNG_SECONDS = 60.0
"""A component that works at one message for longer hangs, and is replaced (the default)."""

START_SECONDS = 30.0
"""How long ``ganger up`` waits for the daemon to be ready."""

DEFAULT_DATA_DIRECTORY = "/var/lib/ganger"


class Places(msgspec.Struct, frozen=True):
    """Where everything of one data directory lies.

    ``data`` is the data directory; ``run`` holds the local socket, and lies on a memory file
    system where there is one. Somebody may clean it up at any time: nothing there proves anything.
    """

    data: Path
    run: Path

    @property
    def queue(self) -> Path:
        """The queue directory, in Ganeti's layout."""
        return self.data / "queue"

    @property
    def archive(self) -> Path:
        """Archived jobs, in folders of 10,000."""
        return self.queue / "archive"

    @property
    def quarantine(self) -> Path:
        """What `ganger fsck --repair` has put aside because nobody can read it."""
        return self.queue / "quarantine"

    @property
    def spool(self) -> Path:
        """What lies beside live jobs: large standard input, output of commands."""
        return self.queue / "spool"

    @property
    def journal(self) -> Path:
        """The journal's segments."""
        return self.queue / "journal"

    @property
    def lock_files(self) -> Path:
        """Lock files: proof of life of the daemon and of each job process."""
        return self.data / "livelocks"

    @property
    def former_lock_files(self) -> Path:
        """Where Ganger 1.1 had them: jobs that it started have theirs there until they end."""
        return self.run / "livelocks"

    @property
    def dry_runs(self) -> Path:
        """Files of jobs that are only rehearsed, in a folder for each process that does so."""
        return self.run / "rehearsals"

    @property
    def locks(self) -> Path:
        """Who holds which lock and who waits."""
        return self.data / "locks.data"

    @property
    def config(self) -> Path:
        """The configuration, in Ganeti's schema."""
        return self.data / "config.data"

    @property
    def log(self) -> Path:
        """The daemon's log, one JSON object a line."""
        return self.data / "daemon.log"

    @property
    def keys(self) -> Path:
        """CURVE keys: the daemon's own and those it knows."""
        return self.data / "keys"

    @property
    def socket(self) -> Path:
        """The local door."""
        return self.run / "socket"

    @property
    def endpoint_file(self) -> Path:
        """Written by a ready daemon: its pid, version and endpoints, as JSON."""
        return self.data / "daemon.json"


def data_directory(given: str | os.PathLike[str] | None = None) -> Path:
    """The data directory: ``given``, else ``GANGER_DATA``, else the default one.

    The default is ``/var/lib/ganger`` for root and ``$XDG_DATA_HOME/ganger`` (or
    ``~/.local/share/ganger``) for everybody else.
    """
    if given:
        return Path(given).absolute()
    if environment := os.environ.get("GANGER_DATA"):
        return Path(environment).absolute()
    if os.geteuid() == 0:
        return Path(DEFAULT_DATA_DIRECTORY)
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "ganger"


def places(data: str | os.PathLike[str] | None = None) -> Places:
    """Where everything lies for the data directory ``data`` (see `data_directory`).

    The run directory follows from the data directory alone, so that a daemon's successor,
    and every client, finds the same one whatever its environment.
    """
    # Not `Path.resolve`, which fails at a loop of links: whoever opens the directory tells of it.
    directory = Path(os.path.realpath(data_directory(data)))
    memory = Path("/dev/shm")  # noqa: S108 - the memory file system itself; a private folder is made in it
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        return Places(directory, directory / "run")
    import hashlib  # noqa: PLC0415 - a whole library of ciphers, which fork servers do without

    digest = hashlib.blake2s(bytes(directory), digest_size=8).hexdigest()
    return Places(directory, memory / f"ganger-{digest}")
