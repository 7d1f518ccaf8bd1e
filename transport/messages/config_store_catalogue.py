"""Messages to the configuration store: the methods of Ganeti's WConfD about the configuration.

Each message is one method of its catalogue, with the same name, arguments and value (Ganeti design:
daemon refactoring). The methods that change something without the caller's lock do not wait while
another owner has ``cluster/config``: their value is then false or null, and the caller tries again.
``sender`` is for the history: the daemon fills it in. ``reveals``: only WConfD's own door shows
secrets; the daemon says no for everybody else.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...storage.locks.locks import Integer, Owner
from .base import Reply, Request

Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
"""A TCP or UDP port."""


class ConfigAnswered(Reply, frozen=True):
    """What the method gives, as JSON; null: it has no result, or another owner has the lock."""

    value: Any = None


class ConfigVerified(Reply, frozen=True):
    """What is wrong with the configuration, one line each."""

    problems: list[str]


# ---------------------------------------------------------------- the whole configuration


class ReadConfig(Request[ConfigAnswered], frozen=True):
    """Read the whole configuration."""

    reveals: bool = False


class LockConfig(Request[ConfigAnswered], frozen=True):
    """Take ``cluster/config`` now or never, and read the whole configuration; null: never."""

    owner: Owner
    is_shared: bool
    reveals: bool = False


class UnlockConfig(Request[ConfigAnswered], frozen=True):
    """Release ``cluster/config``."""

    owner: Owner


class WriteConfig(Request[ConfigAnswered], frozen=True):
    """Change all that is another one in this configuration; the owner must hold the lock.

    What others have changed since the owner has read the configuration stays as it is.
    """

    owner: Owner
    config: dict[str, Any]


class WriteConfigAndUnlock(Request[ConfigAnswered], frozen=True):
    """As `WriteConfig`, then release the lock; false: the owner did not hold it exclusively."""

    owner: Owner
    config: dict[str, Any]


class VerifyConfig(Request[ConfigVerified], frozen=True):
    """Look for contradictions in the whole configuration."""


class FlushConfig(Request[ConfigAnswered], frozen=True):
    """Answer when ``config.data`` and the ssconf files hold all changes."""


class FlushConfigGroup(Request[ConfigAnswered], frozen=True):
    """As `FlushConfig`, for the nodes of one group (UUID)."""

    group: str


class PrepareClusterDestruction(Request[ConfigAnswered], frozen=True):
    """Take ``cluster/BGL`` over from its exclusive owner for good, and leave no master node."""

    owner: Owner


# ---------------------------------------------------------------- instances and disks


class AddInstance(Request[ConfigAnswered], frozen=True):
    """Add an instance, or replace one, and commit the owner's addresses. Gives true."""

    instance: dict[str, Any]
    owner: Owner
    replaces: bool


class RemoveInstance(Request[ConfigAnswered], frozen=True):
    """Remove an instance (UUID); its port and its addresses are free again. Gives true."""

    instance: str
    sender: str = ""


class AddInstanceDisk(Request[ConfigAnswered], frozen=True):
    """Add or replace a disk, and attach it at this index; None: as the last one. Gives true."""

    instance: str
    disk: dict[str, Any]
    index: Integer | None
    replaces: bool
    sender: str = ""


class AttachInstanceDisk(Request[ConfigAnswered], frozen=True):
    """Attach a disk (UUID) to an instance (UUID) at this index; None: as the last one.

    Gives true.
    """

    instance: str
    disk: str
    index: Integer | None
    sender: str = ""


class DetachInstanceDisk(Request[ConfigAnswered], frozen=True):
    """Detach a disk (UUID) from an instance (UUID), if it is attached. Gives true."""

    instance: str
    disk: str
    sender: str = ""


class RemoveInstanceDisk(Request[ConfigAnswered], frozen=True):
    """Detach a disk (UUID) from an instance (UUID), and remove it. Gives true."""

    instance: str
    disk: str
    sender: str = ""


class SetInstancePrimaryNode(Request[ConfigAnswered], frozen=True):
    """Give an instance (UUID) another primary node (UUID). Gives true."""

    instance: str
    node: str
    sender: str = ""


class SetInstanceStatus(Request[ConfigAnswered], frozen=True):
    """Change what is not None of the state of an instance (UUID). Gives the instance."""

    instance: str
    admin_state: str | None
    disks_active: bool | None
    admin_state_source: str | None
    reveals: bool = False
    sender: str = ""


# ---------------------------------------------------------------- ports and single objects


class AllocatePort(Request[ConfigAnswered], frozen=True):
    """Give a TCP or UDP port: one from the pool, or the one above the highest in use."""

    sender: str = ""


class AddTcpUdpPort(Request[ConfigAnswered], frozen=True):
    """Put a port into the pool. Gives true."""

    port: Port
    sender: str = ""


class UpdateCluster(Request[ConfigAnswered], frozen=True):
    """Replace the cluster if it still has this serial number.

    Gives the new serial number and the time, as the other updates do.
    """

    object: dict[str, Any]
    sender: str = ""


class UpdateNode(Request[ConfigAnswered], frozen=True):
    """Replace a node if it still has this serial number."""

    object: dict[str, Any]
    sender: str = ""


class UpdateInstance(Request[ConfigAnswered], frozen=True):
    """Replace an instance if it still has this serial number."""

    object: dict[str, Any]
    sender: str = ""


class UpdateNodeGroup(Request[ConfigAnswered], frozen=True):
    """Replace a node group if it still has this serial number."""

    object: dict[str, Any]
    sender: str = ""


class UpdateNetwork(Request[ConfigAnswered], frozen=True):
    """Replace a network if it still has this serial number."""

    object: dict[str, Any]
    sender: str = ""


class UpdateDisk(Request[ConfigAnswered], frozen=True):
    """Replace a disk if it still has this serial number; its reserved minors are free."""

    object: dict[str, Any]
    sender: str = ""
