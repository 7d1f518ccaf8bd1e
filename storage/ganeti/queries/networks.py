"""The resource ``network``: networks with their address pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ... import errors
from ..address_pools import AddressPool
from .answering import Resource
from .cluster_view import ClusterView, Object, mark, names, place
from .common_fields import common
from .fields import NO_DATA, UNAVAILABLE, Answer, Field, FieldKind, field, normal, stored, table


def _of_pool(show: Callable[[AddressPool], object]) -> Callable[[ClusterView, Object], Answer]:
    """A getter for something of the pool; a network whose pool is damaged has no data."""

    def get(_view: ClusterView, network: Object) -> Answer:
        try:
            return normal(show(AddressPool.of(network)))
        except errors.AddressPoolError:
            return NO_DATA

    return get


def _groups(view: ClusterView, network: Object) -> Answer:
    return normal(
        [
            [group.get("name", ""), *(how.get(key, "-") for key in ("mode", "link", "vlan"))]
            for group, how in view.connected_groups(network)
        ]
    )


def _group_count(view: ClusterView, network: Object) -> Answer:
    return normal(sum(1 for _ in view.connected_groups(network)))


def _fields() -> Iterator[Field[ClusterView]]:
    yield from common("Network")
    yield stored("name", "Network", FieldKind.TEXT, "Name", "name")
    yield stored("network", "Subnet", FieldKind.TEXT, "IPv4 subnet", "network")
    for name, title, doc in (
        ("gateway", "Gateway", "IPv4 gateway"),
        ("gateway6", "IPv6Gateway", "IPv6 gateway"),
        ("mac_prefix", "MacPrefix", "MAC address prefix"),
        ("network6", "IPv6Subnet", "IPv6 subnet"),
    ):
        yield stored(name, title, FieldKind.OTHER, doc, name, unset=UNAVAILABLE)
    yield from _fields_of_pool()
    yield from _fields_of_users()


def _fields_of_pool() -> Iterator[Field[ClusterView]]:
    yield field(
        "external_reservations",
        "ExternalReservations",
        FieldKind.TEXT,
        "External reservations",
        _of_pool(lambda pool: ", ".join(pool.external_reservations)),
    )
    yield field(
        "free_count",
        "FreeCount",
        FieldKind.NUMBER,
        "Number of available addresses",
        _of_pool(lambda pool: pool.free_count),
    )
    yield field("map", "Map", FieldKind.TEXT, "Actual mapping", _of_pool(lambda pool: pool.map))
    yield field(
        "reserved_count",
        "ReservedCount",
        FieldKind.NUMBER,
        "Number of reserved addresses",
        _of_pool(lambda pool: pool.reserved_count),
    )


def _fields_of_users() -> Iterator[Field[ClusterView]]:
    """The groups that are connected to the network, and the instances in it."""
    yield field("group_cnt", "NodeGroups", FieldKind.NUMBER, "Number of nodegroups", _group_count)
    yield field(
        "group_list",
        "GroupList",
        FieldKind.OTHER,
        "List of nodegroups (group name, NIC mode, NIC link)",
        _groups,
    )
    yield field(
        "inst_cnt",
        "Instances",
        FieldKind.NUMBER,
        "Number of instances",
        lambda view, network: normal(len(view.connected_instances(network))),
    )
    yield field(
        "inst_list",
        "InstanceList",
        FieldKind.OTHER,
        "List of instances",
        lambda view, network: normal(names(view.connected_instances(network))),
    )


NETWORKS: Final = Resource(
    "network",
    table(_fields()),
    lambda view: view.ordered("networks"),
    mark,
    place,
    find=lambda view, wanted: view.find("networks", str(wanted)),
    noun="Network name",
)
"""Networks, in the natural order of their names."""
