"""The hosts that a master knows, by name, and who is let in with which key.

Pure but for `read` and `write`. A host has one key. An invitation has a key of its own, which is
good for one thing: to tell the host's key, once, within the time. A key of an old invitation stays
known for a while, so that its user learns what is wrong with it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

from .. import errors
from ..access.keys import check_name
from ..disk import documents

if TYPE_CHECKING:
    from pathlib import Path

INVITATION_SECONDS = 3_600.0
"""How long a token is valid, unless the operator says otherwise."""

FORGOTTEN_IN_ERA = (
    "was started anew since, and does not know the command: it is not known whether it began"
)
"""What is said of a task that may have begun in an earlier era of its host (`begun_tasks`)."""

_MINUTE = 60
_TOLD_SECONDS = 30 * 86_400.0
"""How long the user of a token that is used or too old is told so."""


class Invitation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token that was given out. ``until``: seconds since the epoch."""

    key: str
    until: float
    used_by: str = ""
    """The key of the host that has used it."""


class HostRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host, invited or joined. ``key`` is its public key (Z85)."""

    name: str
    key: str = ""
    next_key: str = ""
    """The key that replaces `key` when the host calls with it; until then both are good."""

    directory: str = ""
    """The identity of its data directory, which it has made when it joined."""
    joined: float = 0.0
    seal: str = ""
    """By which its data directory is known (`seals`)."""
    era: str = ""
    """Since when it runs, as a word (`begun_tasks`); "": it does not say."""
    era_since: float = 0.0
    """Before this moment (epoch seconds) tasks may have begun there in an earlier era."""
    problem: str = ""
    """Why its daemon is refused until it joins anew; empty: it is not."""
    is_removed: bool = False
    """Whether its node object was removed from the configuration, after which it must join anew."""
    forgotten: float = 0.0
    """Nobody waits for tasks that began before this moment (epoch seconds)."""
    invitations: tuple[Invitation, ...] = ()

    @property
    def is_node(self) -> bool:
        """Whether it has joined, and is still a node of the configuration."""
        return bool(self.key) and not self.is_removed


class HostTable(msgspec.Struct, frozen=True, kw_only=True):
    """All of them. ``endpoint``: where the master listens for hosts."""

    endpoint: str
    announced: tuple[str, ...] = ()
    """The endpoints that tokens name."""
    hosts: dict[str, HostRecord] = {}


class Visitor(msgspec.Struct, frozen=True):
    """Whose key it is. ``invitation``: the key of an invitation; None: the host's own."""

    name: str
    invitation: Invitation | None = None


def visitor_of(table: HostTable, key: str) -> Visitor | None:
    """Who shows this key; None: it is unknown, and no connection is made."""
    for host in table.hosts.values():
        if key and key in (host.key, host.next_key):
            return Visitor(host.name)
        for one in host.invitations:
            if one.key == key:
                return Visitor(host.name, one)
    return None


def invited(table: HostTable, name: str, key: str, until: float, now: float) -> HostTable:
    """The table with a new invitation; `BadRequestError` for a wrong name."""
    check_name(name)
    host = table.hosts.get(name) or HostRecord(name=name)
    known = tuple(one for one in host.invitations if now < one.until + _TOLD_SECONDS)
    changed = msgspec.structs.replace(host, invitations=(*known, Invitation(key=key, until=until)))
    return _with(table, changed)


def joined(table: HostTable, visitor: Visitor, key: str, directory: str, now: float) -> HostTable:
    """The table after a host has shown an invitation, and told its own key.

    The same host may repeat it. `NotAllowedError`: the token is used, or too old.
    """
    invitation, host = visitor.invitation, table.hosts[visitor.name]
    if invitation is None or invitation.used_by == key:
        return table
    if invitation.used_by:
        raise errors.NotAllowedError(
            f"this token was used already, for another host or directory; {_again(host.name)}"
        )
    if now > invitation.until:
        past = round(now - invitation.until)
        ago = f"{past} s" if past < _MINUTE else f"{past // _MINUTE} min"
        raise errors.NotAllowedError(f"this token was valid until {ago} ago; {_again(host.name)}")
    _check_own(table, host.name, key)
    used = msgspec.structs.replace(invitation, used_by=key)
    invitations = tuple(used if one.key == used.key else one for one in host.invitations)
    changed = msgspec.structs.replace(host, invitations=invitations)
    if not host.is_node or host.problem or (host.key, host.directory) != (key, directory):
        # With nothing known of earlier tasks.
        anew = {"key": key, "next_key": "", "directory": directory, "joined": now}
        changed = msgspec.structs.replace(changed, **anew, seal="", problem="", is_removed=False)
    return _with(table, changed)


def rotating(table: HostTable, visitor: Visitor, key: str, directory: str) -> HostTable:
    """The table after a host has told its next key. `NotAllowedError`: it may not."""
    host = table.hosts[visitor.name]
    if visitor.invitation is not None or host.directory != directory:
        raise errors.NotAllowedError(f"node {host.name}: only the host itself changes its key")
    _check_own(table, host.name, key)
    next_key = "" if key == host.key else key
    return _with(table, msgspec.structs.replace(host, next_key=next_key))


def called(table: HostTable, name: str, key: str) -> HostTable:
    """The table after this host has called with this key: a new one replaces the one before."""
    host = table.hosts[name]
    if not host.next_key or key != host.next_key:
        return table
    invitations = tuple(
        msgspec.structs.replace(one, used_by=key) if one.used_by == host.key else one
        for one in host.invitations
    )
    changed = msgspec.structs.replace(host, key=key, next_key="", invitations=invitations)
    return _with(table, changed)


def _check_own(table: HostTable, name: str, key: str) -> None:
    if any(key in {one.key, one.next_key} for other, one in table.hosts.items() if other != name):
        raise errors.NotAllowedError("another node has joined with the key of this host")


def removed(table: HostTable, name: str) -> HostTable:
    """The table without this host, and without its invitations."""
    if name not in table.hosts:
        raise unknown(table, name)
    return msgspec.structs.replace(
        table, hosts={one: host for one, host in table.hosts.items() if one != name}
    )


def without_object(table: HostTable, name: str) -> HostTable:
    """The table after the node object of this host was removed from the configuration."""
    problem = (
        f"node {name} was removed from the configuration; "
        f"`ganger node invite {name}` lets this host join anew"
    )
    changed = msgspec.structs.replace(table.hosts[name], is_removed=True, problem=problem)
    return _with(table, changed)


def unknown(table: HostTable, name: str) -> errors.BadRequestError:
    """What is said of a host that was never invited, or never joined."""
    if name in table.hosts and not table.hosts[name].key:
        text = f"node {name!r} was invited, and has not joined yet"
        return errors.BadRequestError(text)
    known = ", ".join(joined_names(table)) or "none"
    return errors.BadRequestError(f"there is no node {name!r}; nodes that have joined: {known}")


def joined_names(table: HostTable | None) -> list[str]:
    """The names of the hosts that have joined."""
    return sorted(one for one, host in table.hosts.items() if host.is_node) if table else []


class TaskStanding(enum.Enum):
    """Whether a node can say what became of a task."""

    OPEN = "it can"
    JOINED_SINCE = "it has joined anew since, with nothing known of the task"
    FORGOTTEN = "its tasks were forgotten on request"
    REMOVED = "it was removed"


def standing(table: HostTable | None, name: str, began: float) -> TaskStanding:
    """Whether the node can say what became of a task whose opcode began then (epoch seconds)."""
    host = None if table is None else table.hosts.get(name)
    if host is None or not host.is_node:
        return TaskStanding.REMOVED
    if began <= host.forgotten:
        return TaskStanding.FORGOTTEN
    return TaskStanding.JOINED_SINCE if began < host.joined else TaskStanding.OPEN


def unknown_end(name: str, why: TaskStanding) -> str:
    """What is said of a task of which the node cannot tell."""
    said = {
        TaskStanding.JOINED_SINCE: f"node {name} has joined anew since the command began",
        TaskStanding.FORGOTTEN: f"the tasks of node {name} were forgotten on request",
        TaskStanding.REMOVED: f"node {name} was removed",
    }
    return f"{said[why]}: it is not known whether the command still runs on {name}"


def forgotten(table: HostTable, name: str, now: float) -> HostTable:
    """The table after an operator has said that nobody waits for the node's tasks until now."""
    if name not in table.hosts:
        raise unknown(table, name)
    return _with(table, msgspec.structs.replace(table.hosts[name], forgotten=now))


def sealed(table: HostTable, name: str, seal: str, problem: str) -> HostTable:
    """The table after a node has called, or was refused for this problem."""
    return _with(table, msgspec.structs.replace(table.hosts[name], seal=seal, problem=problem))


def in_era(table: HostTable, name: str, era: str, silent_since: float) -> HostTable:
    """The table after a node has called in this era; before that it was silent."""
    host = table.hosts[name]
    if era == host.era:
        return table
    return _with(table, msgspec.structs.replace(host, era=era, era_since=silent_since))


def read(path: Path) -> HostTable | None:
    """The stored table; None: no host was ever invited. `StorageError` if it cannot be read."""
    data = documents.read(path)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=HostTable)
    except msgspec.MsgspecError as error:
        raise errors.StorageError(f"{path}: {error}") from error


def write(path: Path, table: HostTable) -> None:
    """Store it, flushed."""
    documents.make_private_directory(path.parent)
    with documents.storage_errors(path):
        data = msgspec.json.format(msgspec.json.encode(table))
        documents.replace(path, data, flush=True, mode=documents.SECRET_MODE)


def _with(table: HostTable, host: HostRecord) -> HostTable:
    return msgspec.structs.replace(table, hosts={**table.hosts, host.name: host})


def _again(name: str) -> str:
    return f"`ganger node invite {name}` on the master gives a new one"
