"""Messages to the configuration store: the temporary reservations of Ganeti's WConfD.

A reservation belongs to its owner, and ends when the owner dies or drops it; DRBD minors belong to
their disk. It is on disk when the reply comes. Errors are `ReservationError`, in Ganeti's words.
"""

from __future__ import annotations

from ...storage.locks.locks import Owner
from .base import Request
from .config_store_catalogue import ConfigAnswered


class DropAllReservations(Request[ConfigAnswered], frozen=True):
    """End all reservations of the owner, except minors."""

    owner: Owner


class ComputeDrbdMap(Request[ConfigAnswered], frozen=True):
    """Give for each node (UUID) the disk of each minor, in use or reserved."""


class AllocateDrbdMinor(Request[ConfigAnswered], frozen=True):
    """Reserve for a disk (UUID) the smallest free minor on each of the nodes. Gives the minors."""

    disk: str
    nodes: list[str]


class ReleaseDrbdMinors(Request[ConfigAnswered], frozen=True):
    """End the reservations of minors for a disk (UUID)."""

    disk: str


class GenerateMac(Request[ConfigAnswered], frozen=True):
    """Reserve a random MAC address with the prefix of a network (UUID), or of the cluster."""

    owner: Owner
    network: str | None


class ReserveMac(Request[ConfigAnswered], frozen=True):
    """Reserve a MAC address."""

    owner: Owner
    mac: str


class GenerateDrbdSecret(Request[ConfigAnswered], frozen=True):
    """Reserve a random secret of 40 hexadecimal digits."""

    owner: Owner


class ReserveLv(Request[ConfigAnswered], frozen=True):
    """Reserve a logical volume, ``group/name``."""

    owner: Owner
    volume: str


class ReserveIp(Request[ConfigAnswered], frozen=True):
    """Record that the owner's commit reserves an IPv4 address in a network (UUID)."""

    owner: Owner
    network: str
    address: str
    checks_external: bool


class ReleaseIp(Request[ConfigAnswered], frozen=True):
    """Record that the owner's commit releases an IPv4 address in a network (UUID)."""

    owner: Owner
    network: str
    address: str


class GenerateIp(Request[ConfigAnswered], frozen=True):
    """Record that the owner's commit reserves the lowest free address of a network (UUID)."""

    owner: Owner
    network: str


class ListReservedIps(Request[ConfigAnswered], frozen=True):
    """Give what the owner has recorded: (reserve or release, address, network) of each."""

    owner: Owner


class CommitTemporaryIps(Request[ConfigAnswered], frozen=True):
    """Make the recorded changes of the owner in its networks. The reservations stay.

    This and `CommitReleaseTemporaryIp` need no lock: their callers hold it.
    """

    owner: Owner


class CommitReleaseTemporaryIp(Request[ConfigAnswered], frozen=True):
    """Release an IPv4 address in a network (UUID) at once."""

    network: str
    address: str
    sender: str = ""
