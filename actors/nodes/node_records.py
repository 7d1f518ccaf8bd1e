"""Has the configuration store keep a node object for each host: made when it joins, then removed.

Each request may be repeated. The store's own rules hold: a node with instances is not removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...storage import errors
from ...storage.cluster.configuration import ABSENT_SERIAL
from ...storage.cluster.objects import ObjectKind
from ...storage.nodes import node_objects
from ...transport import messages
from ..runtime.addresses import CONFIG_STORE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime

    Then = Callable[[], None]
    Otherwise = Callable[[errors.GangerError], None]

_SENDER = "node hub"


class NodeRecords:
    """Asks the configuration store."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.cluster: tuple[str, str] | None = None
        """UUID and name of the cluster; None: the store has not said them yet."""

    def serve(self, envelope: Envelope[Any], then: Then) -> None:
        """Call ``then`` when `cluster` is known; its errors are answered."""

        def go_on() -> None:
            try:
                then()
            except errors.GangerError as error:
                envelope.refuse(error)

        self.ask_cluster(go_on, envelope.refuse)

    def ask_cluster(self, then: Then, otherwise: Otherwise) -> None:
        """Call ``then`` when `cluster` is known, as it is now."""

        def read(found: messages.ObjectsRead) -> None:
            cluster = found.objects[0]
            self.cluster = cluster["uuid"], cluster["cluster_name"]
            then()

        asked = messages.ReadObjects(ObjectKind.CLUSTER)
        self._runtime.ask(CONFIG_STORE, asked, read, otherwise)

    def ensure(self, name: str, address: str, then: Then, otherwise: Otherwise) -> None:
        """Call ``then`` when there is a node object of this name.

        ``address``: of the host's connection. A new object goes without, if another one has it.
        """

        def known() -> None:
            assert self.cluster is not None
            plain = node_objects.plain_address(address)
            self._ensure(self.cluster[0], name, plain, then, otherwise)

        self.ask_cluster(known, otherwise)

    def _ensure(
        self, cluster: str, name: str, address: str, then: Then, otherwise: Otherwise
    ) -> None:
        def missing(error: errors.GangerError) -> None:
            if isinstance(error, errors.UnknownObjectError):
                groups = messages.ReadObjects(ObjectKind.NODE_GROUP)
                self._runtime.ask(CONFIG_STORE, groups, read, otherwise)
            else:
                otherwise(error)

        def read(found: messages.ObjectsRead) -> None:
            group = node_objects.group_for(found.objects)
            new = [] if group is not None else [node_objects.new_group(cluster)]
            self._make(cluster, name, address, (group or new[0])["uuid"], new, then, otherwise)

        self._runtime.ask(CONFIG_STORE, _read(name), lambda _: then(), missing)

    def _make(  # noqa: PLR0917 - one object, and what follows
        self,
        cluster: str,
        name: str,
        address: str,
        group: str,
        new_groups: list[dict[str, str]],
        then: Then,
        otherwise: Otherwise,
    ) -> None:
        node = node_objects.new_node(cluster, name, address, group)
        changes = [
            *(_new(ObjectKind.NODE_GROUP, one) for one in new_groups),
            _new(ObjectKind.NODE, node),
        ]

        def failed(error: errors.GangerError) -> None:
            if isinstance(error, errors.StaleSerialError):
                # Another host made the group meanwhile, or an earlier request has come through.
                self._ensure(cluster, name, address, then, otherwise)
            elif isinstance(error, errors.IntegrityError) and address:
                # Hosts behind one address are told apart by their keys.
                self._make(cluster, name, "", group, new_groups, then, otherwise)
            else:
                otherwise(error)

        asked = messages.ChangeObjects(changes, why=f"node {name} has joined", sender=_SENDER)
        self._runtime.ask(CONFIG_STORE, asked, lambda _: then(), failed)

    def look(self, name: str, missing: Then) -> None:
        """Call ``missing`` if there is no node object for the host of this name."""

        def known() -> None:
            assert self.cluster is not None
            # An object keeps its UUID when it gets another name.
            own = node_objects.uuid_of(self.cluster[0], "nodes", name)
            self._look([name, own], missing)

        self.ask_cluster(known, lambda _: None)

    def _look(self, names: list[str], missing: Then) -> None:
        def failed(error: errors.GangerError) -> None:
            # What cannot be known is looked at when the host calls again.
            if isinstance(error, errors.UnknownObjectError):
                self._look(names[1:], missing) if names[1:] else missing()

        self._runtime.ask(CONFIG_STORE, _read(names[0]), lambda _: None, failed)

    def remove(self, name: str, then: Then, otherwise: Otherwise) -> None:
        """Call ``then`` when there is no node object of this name; ``otherwise``: it stays."""

        def failed(error: errors.GangerError) -> None:
            if isinstance(error, errors.UnknownObjectError):
                then()
            elif isinstance(error, errors.StaleSerialError):
                self.remove(name, then, otherwise)
            elif isinstance(error, errors.IntegrityError):
                otherwise(errors.IntegrityError(f"node {name} stays: {error.text}"))
            else:
                otherwise(error)

        def read(found: messages.ObjectsRead) -> None:
            [node] = found.objects
            gone = messages.ObjectChange(
                kind=ObjectKind.NODE, uuid=node["uuid"], serial_no=node.get("serial_no")
            )
            asked = messages.ChangeObjects([gone], why=f"node {name} is removed", sender=_SENDER)
            self._runtime.ask(CONFIG_STORE, asked, lambda _: then(), failed)

        self._runtime.ask(CONFIG_STORE, _read(name), read, failed)


def _read(name: str) -> messages.ReadObjects:
    return messages.ReadObjects(ObjectKind.NODE, [name])


def _new(kind: ObjectKind, found: dict[str, str]) -> messages.ObjectChange:
    return messages.ObjectChange(
        kind=kind, uuid=found["uuid"], object=found, serial_no=ABSENT_SERIAL
    )
