"""Keeps the temporary reservations: the single writer of ``tempres.data``.

What one turn reserves is stored together, before any reply is sent. Owners that died lose their
reservations within a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...storage import errors, settings
from ...storage.alive import lock_files
from ...storage.cluster.configuration import Change, Configuration
from ...storage.cluster.damage import undamaged
from ...storage.cluster.objects import ObjectKind
from ...storage.disk import documents
from ...storage.ganeti import reservations
from ...storage.ganeti.modifications import Modified, released_address
from ...storage.ganeti.object_rules import MAC_ADDRESS, MINOR, SECRET, VOLUME, on_node
from ...storage.ganeti.reservations import Reservations, drbd_minors, network_missing
from ...storage.wording import shortened
from ...transport import messages
from ..config.change_line import ChangeLine, Made, name_of
from ..config.stored_configuration import Edit, StoredConfiguration
from . import notices

if TYPE_CHECKING:
    from ...storage.ganeti.address_pools import Network
    from ...storage.locks.locks import Owner
    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime

FILE_MODE = 0o600
"""As that of the locks."""


class ReservationKeeper:
    """The part of the configuration store that owns the reservations."""

    def __init__(
        self, runtime: Runtime, configuration: StoredConfiguration, changes: ChangeLine
    ) -> None:
        """Read the reservations; end those of dead owners. Raises `StorageError`."""
        self._runtime = runtime
        self._configuration = configuration
        self._changes = changes
        self._path = runtime.host.places.reservations
        data = documents.read(self._path)
        self._stored = (
            reservations.ReservationsFile() if data is None else reservations.decode(data)
        )
        self._reservations = Reservations(self._stored)
        self._answers: list[tuple[Envelope, Any]] = []
        self._is_sweep_due = self._is_changed = False
        self.sweep()

    # ------------------------------------------------------------ methods

    def answer(self, envelope: Envelope, give: Callable[[], object]) -> None:
        """Reply with what ``give`` gives, at the end of the turn: then it is on disk.

        It may change the table in memory. Raises `ReservationError`.
        """
        self._is_changed = True
        value = undamaged(self._configuration.snapshot, give, errors.ModificationError)
        self._answers.append((envelope, value))

    def drop(self, owner: Owner) -> None:
        """End all reservations of the owner, except minors."""
        self._reservations.drop(owner)

    def generate_mac(self, owner: Owner, network: str | None) -> str:
        """Reserve a random MAC address with the prefix of a network (UUID), or of the cluster."""
        prefix, macs = self._mac_prefix(network), self._configuration.in_use(MAC_ADDRESS)
        return self._reservations.generate_mac(owner, prefix, macs, random_bytes=os.urandom)

    def reserve_mac(self, owner: Owner, mac: str) -> None:
        """Reserve a MAC address."""
        self._reservations.reserve_mac(owner, mac, self._configuration.in_use(MAC_ADDRESS))

    def generate_secret(self, owner: Owner) -> str:
        """Reserve a random secret of 40 hexadecimal digits."""
        secrets = self._configuration.provided(SECRET)
        return self._reservations.generate_secret(owner, secrets, random_bytes=os.urandom)

    def reserve_volume(self, owner: Owner, volume: str) -> None:
        """Reserve a logical volume, ``group/name``."""
        self._reservations.reserve_volume(owner, volume, self._configuration.provided(VOLUME))

    def reserve_ip(self, owner: Owner, network: str, address: str, checks: bool) -> None:  # noqa: FBT001 - an argument of WConfD
        """Record that the owner's commit reserves an IPv4 address in a network (UUID)."""
        found = self._network(network)
        self._reservations.reserve_ip(owner, found, address, is_external_checked=checks)

    def release_ip(self, owner: Owner, network: str, address: str) -> None:
        """Record that the owner's commit releases an IPv4 address in a network (UUID)."""
        self._reservations.release_ip(owner, self._network(network), address)

    def generate_ip(self, owner: Owner, network: str) -> str:
        """Record that the owner's commit reserves the lowest free address of a network (UUID)."""
        return self._reservations.generate_ip(owner, self._network(network))

    def reserved_ips(self, owner: Owner) -> list[list[str]]:
        """What the owner has recorded: (reserve or release, address, network) of each."""
        changes = self._reservations.ip_changes(owner)
        return [[one.action, one.address, one.network] for one in changes]

    def minors_map(self) -> object:
        """For each node (UUID) the disk of each minor, in use or reserved."""
        snapshot = self._configuration.snapshot
        disks = snapshot.objects(ObjectKind.DISK)
        used = ((minor, uuid) for uuid, disk in disks for minor in drbd_minors(disk))
        nodes = (uuid for uuid, _ in snapshot.objects(ObjectKind.NODE))
        return self._reservations.minors_map(nodes, used)

    def allocate_minors(self, disk: str, nodes: list[str]) -> list[int]:
        """Reserve for a disk (UUID) the smallest free minor on each of the nodes."""
        for node in nodes:
            if self._configuration.snapshot.get(ObjectKind.NODE, node) is None:
                text = f"Could not find node with UUID {shortened(node)}"
                raise errors.ModificationError(text)
        return self._reservations.allocate_minors(
            disk, nodes, lambda node: self._configuration.in_use(MINOR, on_node(node))
        )

    def commit(self, envelope: Envelope[messages.CallMethodAsOwner]) -> None:
        """Make the recorded changes of the owner in its networks. The reservations stay.

        This and `commit_release` need no lock: their callers hold it.
        """
        owner = envelope.message.owner
        self.check_alive(owner)

        def make(snapshot: Configuration) -> Made:
            networks = self.committed_networks(owner, snapshot)
            changes = [Change(ObjectKind.NETWORK, *one) for one in networks.items()]
            return _made(envelope, name_of(owner), Modified(changes, lambda _: None))

        self._changes.add_unlocked(envelope, make)

    def commit_release(
        self, envelope: Envelope[messages.CallMethod], network: str, address: str
    ) -> None:
        """Release an IPv4 address in a network (UUID) at once."""
        sender = envelope.message.sender
        self._changes.add_unlocked(
            envelope, lambda now: _made(envelope, sender, released_address(now, network, address))
        )

    def _network(self, uuid: str) -> Network:
        found: Network | None = self._configuration.snapshot.get(ObjectKind.NETWORK, uuid)
        if found is None:
            raise network_missing(shortened(uuid))
        return {**found, "uuid": uuid}

    def _mac_prefix(self, network: str | None) -> str:
        prefix = None if network is None else self._network(network).get("mac_prefix")
        prefix = prefix or self._configuration.snapshot.cluster.get("mac_prefix")
        if not isinstance(prefix, str):
            raise errors.ReservationError("cluster.mac_prefix: there is none")
        return prefix

    # ------------------------------------------------------------ for other parts

    def committed_networks(self, owner: Owner, snapshot: Configuration) -> dict[str, Network]:
        """The networks as they are after the owner's commit. Raises `ReservationError`."""
        wanted = {change.network for change in self._reservations.ip_changes(owner)}
        found = {uuid: snapshot.get(ObjectKind.NETWORK, uuid) for uuid in wanted}
        known = {uuid: network for uuid, network in found.items() if network is not None}
        changed = self._reservations.committed_ips(owner, known)
        return {uuid: one for uuid, one in changed.items() if one != known[uuid]}

    def release_minors(self, disk: str) -> None:
        """The disk is in the configuration, or will never be."""
        self._is_changed |= self._reservations.release_minors(disk)

    # ------------------------------------------------------------ disk and owners

    def turn_ended(self) -> None:
        """Store what was changed, then answer; if the disk refuses, nothing was changed."""
        answers, self._answers = self._answers, []
        if self._is_changed:
            self._is_changed = False
            try:
                self._write()
            except errors.StorageError as error:
                self._reservations = Reservations(self._stored)
                self._runtime.log.error("reservations are not stored", error=error.text)
                for envelope, _ in answers:
                    envelope.refuse(error)
                answers = []
        for envelope, value in answers:
            envelope.reply(messages.ConfigAnswered(value))
        self._sweep_later()

    def sweep(self) -> None:
        """End the reservations of dead owners."""
        self._is_sweep_due = False
        owners = self._reservations.owners()
        dead = {path for path in {one.lock_file for one in owners} if lock_files.is_dead(path)}
        for owner in owners:
            if owner.lock_file in dead:
                self._runtime.log.info("a dead owner's reservations end", lock_file=owner.lock_file)
                self._is_changed |= self._reservations.drop(owner)
        self._sweep_later()

    def _write(self) -> None:
        file = self._reservations.file()
        if file != self._stored:
            data = reservations.encode(file)
            documents.replace(self._path, data, flush=True, mode=FILE_MODE)
            self._stored = file

    def _sweep_later(self) -> None:
        if not self._is_sweep_due and self._reservations.owners():
            self._is_sweep_due = True
            self._runtime.later(settings.OWNERS_SWEEP_SECONDS, notices.SweepReservations())

    def check_alive(self, owner: Owner) -> None:
        """Raise `LockRequestError` if the owner is dead."""
        if lock_files.is_dead(owner.lock_file):
            text = f"the owner's lock file {shortened(owner.lock_file)} is dead"
            raise errors.LockRequestError(text)


def _made(envelope: Envelope, who: str, modified: Modified) -> Made:
    def done(after: Configuration) -> None:
        envelope.reply(messages.ConfigAnswered(modified.value(after)))

    return Made(Edit(modified.changes, who, "addresses committed"), done)
