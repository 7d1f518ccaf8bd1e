"""Where everything lies: the paths of a data directory, and which one it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from .. import errors

DEFAULT_DATA_DIRECTORY = "/var/lib/ganger"

RESERVE = "reserve"
"""A file of the queue directory: space that is kept for when the disk is full."""


class Places(msgspec.Struct, frozen=True):
    """The paths of one data directory.

    ``data`` is the data directory; ``run`` holds the local socket, on a memory file system if there
    is one. An administrator may clean up ``run`` at any time: nothing in it proves anything.
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
    def reserve(self) -> Path:
        """Space that is kept for when the disk is full."""
        return self.queue / RESERVE

    @property
    def start_reserve(self) -> Path:
        """Space that is kept for a start of the daemon on a full disk."""
        return self.queue / "reserve.start"

    @property
    def quarantine(self) -> Path:
        """Unreadable files that `ganger fsck --repair` has put aside."""
        return self.queue / "quarantine"

    @property
    def spool(self) -> Path:
        """Files beside live jobs: large standard input, output of commands."""
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
        """The folder of Ganger 1.1: jobs that it started keep their lock files there."""
        return self.run / "livelocks"

    @property
    def dry_runs(self) -> Path:
        """Files of the dry runs of fork servers, in a folder for each process."""
        return self.run / "rehearsals"

    @property
    def archive_index(self) -> Path:
        """What listings show of archived jobs (`archive_index`)."""
        return self.data / "archive.index"

    @property
    def hosts(self) -> Path:
        """The hosts that have joined or were invited (`storage.nodes.host_table`)."""
        return self.data / "nodes" / "hosts.json"

    @property
    def membership(self) -> Path:
        """Of which cluster this directory's host is a node (`storage.nodes.membership`)."""
        return self.data / "node.json"

    @property
    def node_settings(self) -> Path:
        """What a host lets tasks do (`storage.nodes.task_settings`)."""
        return self.data / "node.toml"

    @property
    def purged_tasks(self) -> Path:
        """On a node: the tasks that were purged (`storage.queue_files.purged_tasks`)."""
        return self.data / "purged.tasks"

    @property
    def cluster_files(self) -> Path:
        """On a node: the files about the cluster that the master has copied there."""
        return self.data / "cluster"

    @property
    def node_socket(self) -> Path:
        """The socket of the process that has the connections of the nodes.

        In a folder of its own: each listener keeps files beside its socket.
        """
        return self.run / "n" / "socket"

    @property
    def reservations(self) -> Path:
        """Temporary reservations, as Ganeti keeps them."""
        return self.data / "tempres.data"

    @property
    def ages(self) -> Path:
        """When jobs came, on the clock of this boot."""
        return self.data / "ages.json"

    @property
    def estimates(self) -> Path:
        """Run times of the opcodes that have ended, for estimates."""
        return self.data / "estimates.json"

    @property
    def locks(self) -> Path:
        """The owners of locks, and the waiting requests."""
        return self.data / "locks.data"

    @property
    def lock_journal(self) -> Path:
        """The changes of locks since ``locks.data`` was written."""
        return self.data / "locks.journal"

    @property
    def rapi_users(self) -> Path:
        """The users of the remote API."""
        return self.data / "rapi" / "users"

    @property
    def rapi_certificate(self) -> Path:
        """Key and certificate of the remote API, in one file."""
        return self.data / "rapi.pem"

    @property
    def config(self) -> Path:
        """The configuration, in Ganeti's schema."""
        return self.data / "config.data"

    @property
    def config_copy(self) -> Path:
        """A copy of it, for the case that it cannot be read."""
        return self.data / "config.data.copy"

    @property
    def config_journal(self) -> Path:
        """Where earlier versions kept the changes of the configuration (`config_log`)."""
        return self.data / "config.journal"

    @property
    def config_history(self) -> Path:
        """Who changed what of the configuration, when and why: one JSON object a line."""
        return self.data / "config.history"

    @property
    def ssconf(self) -> Path:
        """The folder of the ssconf files: the configuration as plain lines, for scripts."""
        return self.data / "ssconf"

    @property
    def log(self) -> Path:
        """The daemon's log, one JSON object a line."""
        return self.data / "daemon.log"

    @property
    def keys(self) -> Path:
        """CURVE keys: the daemon's own and those of its clients."""
        return self.data / "keys"

    @property
    def socket(self) -> Path:
        """The socket of the local listener."""
        return self.run / "socket"

    @property
    def authority_socket(self) -> Path:
        """The socket of the process that has lock manager and configuration store, if one has.

        In a folder of its own: each listener keeps files beside its socket.
        """
        return self.run / "a" / "socket"

    @property
    def wconfd_socket(self) -> Path:
        """The socket at which Ganeti's programs ask WConfD for locks."""
        return self.run / "ganeti-wconfd"

    @property
    def luxi_socket(self) -> Path:
        """The socket at which Ganeti's own tools find LUXI, unless the operator names another."""
        return self.run / "ganeti-query"

    @property
    def endpoint_file(self) -> Path:
        """The endpoint file of a ready daemon: its pid, version and endpoints, as JSON."""
        return self.data / "daemon.json"

    @property
    def options_file(self) -> Path:
        """The options with which the last daemon was started, but for defaults, as JSON."""
        return self.data / "daemon.options"


def data_directory(given: str | os.PathLike[str] | None = None) -> Path:
    """The data directory: ``given``, else ``GANGER_DATA``, else the default one.

    The default is ``/var/lib/ganger`` for root and ``$XDG_DATA_HOME/ganger`` (or
    ``~/.local/share/ganger``) for other users. `DataDirectoryError` if it cannot be known.
    """
    if given:
        return _absolute(given)
    if environment := os.environ.get("GANGER_DATA"):
        return _absolute(environment)
    return default_data_directory()


def default_data_directory() -> Path:
    """The data directory that nobody has named, as `data_directory`."""
    if os.geteuid() == 0:
        return Path(DEFAULT_DATA_DIRECTORY)
    if folder := os.environ.get("XDG_DATA_HOME"):
        return Path(folder) / "ganger"
    try:
        home = Path.home()
    except RuntimeError as error:
        # No `HOME`, and a user whom the system does not know: usual in a container.
        text = f"uid {os.geteuid()} has no home directory: name a data directory, as GANGER_DATA"
        raise errors.DataDirectoryError(text) from error
    return home / ".local" / "share" / "ganger"


def _absolute(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).absolute()
    except FileNotFoundError as error:
        text = f"{os.fspath(path)}: a relative path, and the working directory was deleted"
        raise errors.DataDirectoryError(text) from error


def places(data: str | os.PathLike[str] | None = None) -> Places:
    """The paths for the data directory ``data`` (see `data_directory`).

    The run directory follows from the data directory alone: a daemon's successor and every client
    find the same one, whatever their environment. Every user may make names on the memory file
    system: what is there, and not the owner's directory, leaves the run directory to the data
    directory, or to where a link in that leads (`run_directory.with_room`). One that is there
    already stays in use, also when that name is free again.
    """
    # Not `Path.resolve`, which fails at a loop of links; opening the directory reports the loop.
    directory = Path(os.path.realpath(data_directory(data)))
    own, memory = directory / "run", memory_run(directory)
    if memory is None:
        return Places(directory, own)
    owner = _owner(directory)
    used = own if _is_directory_of(own, owner) else _linked(own, owner)
    is_free = not os.path.lexists(memory)
    if _is_directory_of(memory, owner) or (is_free and used is None):
        return Places(directory, memory)
    return Places(directory, used or own)


MEMORY = "/dev/shm"  # noqa: S108 - the memory file system itself; a private folder is made in it


def memory_run(directory: Path) -> Path | None:
    """Where the run directory lies unless somebody else took its name; None: in the data directory.

    >>> memory_run(Path("/a")) != memory_run(Path("/b")) or not os.path.isdir(MEMORY)
    True
    """
    if not (os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK)):
        return None
    return Path(f"{MEMORY}/ganger-{_digest(bytes(directory))}")


def _owner(directory: Path) -> int:
    """Whose daemon works in this directory, which he may be about to make."""
    try:
        return directory.stat().st_uid
    except OSError:
        return os.geteuid()


def _is_directory_of(path: Path, owner: int) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == owner


def _linked(link: Path, owner: int) -> Path | None:
    """The run directory to which this link leads, if it is one that a daemon has made."""
    try:
        found = Path(os.readlink(link))
    except OSError:
        return None
    is_ours = os.fspath(found.parent) == MEMORY and _is_directory_of(found, owner)
    return found if is_ours else None


def _digest(data: bytes) -> str:
    try:
        # What `hashlib` has, too, but that loads a library of ciphers first.
        from _blake2 import blake2s  # noqa: PLC0415
    except ImportError:
        from hashlib import blake2s  # noqa: PLC0415
    return blake2s(data, digest_size=8).hexdigest()
