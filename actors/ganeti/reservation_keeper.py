"""Keeps the temporary reservations: the single writer of ``tempres.data``.

What one turn reserves is stored together, before any reply is sent. Owners that died lose their
reservations within a second.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from ...storage import errors, settings
from ...storage.alive import lock_files
from ...storage.cluster.assertions import MAC_ADDRESS, MINOR, SECRET, VOLUME, on_node
from ...storage.cluster.configuration import Change, Configuration
from ...storage.cluster.damage import undamaged
from ...storage.cluster.objects import ObjectKind
from ...storage.disk import documents
from ...storage.ganeti import reservations
from ...storage.ganeti.modifications import Modified, released_address
from ...storage.ganeti.reservations import Reservations, drbd_minors, network_missing
from ...storage.wording import shortened
from ...transport import messages
from ..config.change_line import ChangeLine, Made, name_of
from ..config.stored_configuration import Edit, StoredConfiguration

if TYPE_CHECKING:
    from ...storage.cluster.address_pools import Network
    from ...storage.locks.locks import Owner
    from ...transport.envelopes import Envelope
    from ..runtime.runtime import Runtime

FILE_MODE = 0o600
"""As that of the locks."""

_OfOwner = (
    messages.DropAllReservations
    | messages.GenerateMac
    | messages.ReserveMac
    | messages.GenerateDrbdSecret
    | messages.ReserveLv
    | messages.ReserveIp
    | messages.ReleaseIp
    | messages.GenerateIp
    | messages.ListReservedIps
)
_OfDisk = messages.ComputeDrbdMap | messages.AllocateDrbdMinor | messages.ReleaseDrbdMinors
_Commit = messages.CommitTemporaryIps | messages.CommitReleaseTemporaryIp
ReservationMessage = _OfOwner | _OfDisk | _Commit


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

    # ------------------------------------------------------------ requests

    def take(self, envelope: Envelope, message: ReservationMessage) -> None:
        """Handle one message; the reply waits for the end of the turn."""
        snapshot = self._configuration.snapshot
        match message:
            case messages.CommitTemporaryIps():
                self._check_alive(message.owner)
                self._changes.add_unlocked(envelope, lambda now: self._committed(envelope, now))
            case messages.CommitReleaseTemporaryIp(network=network, address=address):
                self._changes.add_unlocked(
                    envelope,
                    lambda now: _made(envelope, message, released_address(now, network, address)),
                )
            case (
                messages.ComputeDrbdMap()
                | messages.AllocateDrbdMinor()
                | messages.ReleaseDrbdMinors()
            ):
                value = undamaged(
                    snapshot, functools.partial(self._of_disk, message), errors.ModificationError
                )
                self._answers.append((envelope, value))
            case _:
                if not isinstance(message, messages.DropAllReservations):
                    self._check_alive(message.owner)
                value = undamaged(
                    snapshot, functools.partial(self._of_owner, message), errors.ModificationError
                )
                self._answers.append((envelope, value))

    def _of_owner(self, message: _OfOwner) -> Any:  # noqa: ANN401 - JSON
        """What the method gives; it changes the table in memory. Raises `ReservationError`."""
        table, in_use = self._reservations, self._configuration.in_use
        owner = message.owner
        if isinstance(message, messages.ListReservedIps):
            return [[one.action, one.address, one.network] for one in table.ip_changes(owner)]
        self._is_changed = True
        value: Any = None
        match message:
            case messages.DropAllReservations():
                table.drop(owner)
            case messages.GenerateMac(network=network):
                prefix = self._mac_prefix(network)
                macs = in_use(MAC_ADDRESS)
                value = table.generate_mac(owner, prefix, macs, random_bytes=os.urandom)
            case messages.ReserveMac(mac=mac):
                table.reserve_mac(owner, mac, in_use(MAC_ADDRESS))
            case messages.GenerateDrbdSecret():
                secrets = self._configuration.provided(SECRET)
                value = table.generate_secret(owner, secrets, random_bytes=os.urandom)
            case messages.ReserveLv(volume=volume):
                table.reserve_volume(owner, volume, self._configuration.provided(VOLUME))
            case messages.ReserveIp(network=network, address=address, checks_external=checks):
                found = self._network(network)
                table.reserve_ip(owner, found, address, is_external_checked=checks)
            case messages.ReleaseIp(network=network, address=address):
                table.release_ip(owner, self._network(network), address)
            case messages.GenerateIp(network=network):
                value = table.generate_ip(owner, self._network(network))
        return value

    def _of_disk(self, message: _OfDisk) -> Any:  # noqa: ANN401 - JSON
        table, snapshot = self._reservations, self._configuration.snapshot
        match message:
            case messages.ComputeDrbdMap():
                disks = snapshot.objects(ObjectKind.DISK)
                used = ((minor, uuid) for uuid, disk in disks for minor in drbd_minors(disk))
                nodes = (uuid for uuid, _ in snapshot.objects(ObjectKind.NODE))
                return table.minors_map(nodes, used)
            case messages.AllocateDrbdMinor(disk=disk, nodes=nodes):
                for node in nodes:
                    if snapshot.get(ObjectKind.NODE, node) is None:
                        text = f"Could not find node with UUID {shortened(node)}"
                        raise errors.ModificationError(text)
                self._is_changed = True
                return table.allocate_minors(
                    disk, nodes, lambda node: self._configuration.in_use(MINOR, on_node(node))
                )
            case messages.ReleaseDrbdMinors(disk=disk):
                self.release_minors(disk)
                return None

    def _committed(self, envelope: Envelope, snapshot: Configuration) -> Made:
        message = envelope.message
        assert isinstance(message, messages.CommitTemporaryIps)
        networks = self.committed_networks(message.owner, snapshot)
        changes = [Change(ObjectKind.NETWORK, uuid, network) for uuid, network in networks.items()]
        return _made(envelope, message, Modified(changes, lambda _: None))

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
            self._runtime.later(settings.OWNERS_SWEEP_SECONDS, messages.SweepReservations())

    def _check_alive(self, owner: Owner) -> None:
        if lock_files.is_dead(owner.lock_file):
            text = f"the owner's lock file {shortened(owner.lock_file)} is dead"
            raise errors.LockRequestError(text)


def _made(envelope: Envelope, message: _Commit, modified: Modified) -> Made:
    def done(after: Configuration) -> None:
        envelope.reply(messages.ConfigAnswered(modified.value(after)))

    if isinstance(message, messages.CommitTemporaryIps):
        who = name_of(message.owner)
    else:
        who = message.sender
    return Made(Edit(modified.changes, who, "addresses committed"), done)
