"""The objects of the configuration that stand for hosts: nodes and their group, as Ganeti has them.

Pure. A host that joins gets a node object; one that is there already, such as one that came from
Ganeti, is kept as it is. The UUID follows from cluster and name: a repeated join makes no second
object.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

GROUP_NAME: Final = "default"
"""The node group that is made for the first host."""


def uuid_of(cluster: str, kind: str, name: str) -> str:
    """The UUID of an object that is made for a host of the cluster with the UUID ``cluster``."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"ganger:{cluster}/{kind}/{name}"))


def group_for(groups: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The group for a new node: ``default``, or the first by name; None: there is none yet."""
    named = sorted(groups, key=lambda group: (group.get("name") != GROUP_NAME, group.get("name")))
    return named[0] if named else None


def new_group(cluster: str) -> dict[str, Any]:
    """The first group of the cluster; all parameters are the cluster's."""
    return {
        "name": GROUP_NAME,
        "members": [],
        "ndparams": {},
        "alloc_policy": "preferred",
        "diskparams": {},
        "ipolicy": {},
        "networks": {},
        "uuid": uuid_of(cluster, "nodegroups", GROUP_NAME),
        "tags": [],
    }


def new_node(cluster: str, name: str, address: str, group: str) -> dict[str, Any]:
    """The node object of a host that joins; ``address`` may be empty. It can be no master."""
    return {
        "name": name,
        "primary_ip": address,
        "secondary_ip": address,
        "master_candidate": False,
        "offline": False,
        "drained": False,
        "group": group,
        "master_capable": False,
        "vm_capable": True,
        "ndparams": {},
        "powered": True,
        "uuid": uuid_of(cluster, "nodes", name),
        "tags": [],
    }


def plain_address(address: str) -> str:
    """The IP address of a connection without its port; empty if it has none.

    >>> plain_address("10.0.0.7:41234"), plain_address("[fd00::7]:41234"), plain_address("fd00::7")
    ('10.0.0.7', 'fd00::7', 'fd00::7')
    >>> plain_address("::ffff:10.0.0.7")
    '10.0.0.7'
    """
    for text in (address, address.rpartition(":")[0]):
        try:
            found = ipaddress.ip_address(text.strip("[]"))
        except ValueError:
            continue
        # A listener at ``[::]`` shows a caller's IPv4 address so.
        return str(getattr(found, "ipv4_mapped", None) or found)
    return ""
