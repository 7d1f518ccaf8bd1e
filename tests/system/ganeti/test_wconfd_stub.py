"""Ganeti's own Python client of WConfD, unmodified, calls every method of the catalogue."""

# ruff: noqa: FBT003 - arguments of Ganeti's methods have no names

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import clusters
from tests.clusters import uuid_of
from tests.faults.harness import Daemon
from tests.system.ganeti import ganeti_stub
from tests.system.ganeti.ganeti_stub import Stub, StubError
from tests.system.ganeti.wconfd import ClientId, Owners

from ganger.actors.ganeti.wconfd_methods import METHODS
from ganger.storage import config_files, settings
from ganger.storage.ganeti.reservations import decode

PROBLEM = ganeti_stub.problem()
pytestmark = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM or "-")

INSTANCE, OTHER = uuid_of("instances", 0), uuid_of("instances", 1)
DISK, PLAIN = uuid_of("disks", 0), uuid_of("disks", 1)
NODE, SECOND = uuid_of("nodes", 0), uuid_of("nodes", 1)
NETWORK, GROUP = uuid_of("networks", 0), uuid_of("nodegroups", 0)
NEW = "99999999-0000-4000-8000-00000000000{}"


@pytest.fixture(scope="module", name="daemon", params=settings.PLACEMENTS)
def one_daemon(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("stub")
    (folder / "data").mkdir()
    config_files.write(folder / "data/config.data", clusters.made_configuration(instances=4))
    with Daemon(folder, placement=request.param) as daemon:
        yield daemon


@pytest.fixture(scope="module", name="stub")
def one_stub(daemon: Daemon) -> Iterator[Stub]:
    with (
        tempfile.TemporaryDirectory(prefix="stub-") as folder,
        Stub(Path(folder), daemon.places.wconfd_socket) as stub,
    ):
        yield stub


@pytest.fixture(name="owners")
def owners_of_locks(daemon: Daemon, stub: Stub) -> Iterator[Owners]:
    with Owners(daemon) as owners:
        yield owners
    stub.call("CleanupLocks")


@pytest.fixture(name="job")
def one_owner(owners: Owners) -> ClientId:
    return owners.own("stub")


def config(stub: Stub) -> dict[str, Any]:
    found: dict[str, Any] = stub.call("ReadConfig")
    return found


def refused(stub: Stub, method: str, *args: Any) -> tuple[str, list[Any]]:
    with pytest.raises(StubError) as caught:
        stub.call(method, *args)
    name, found = caught.value.args
    return name, found


def test_the_stub_has_no_method_that_is_unknown_here(stub: Stub) -> None:
    offered = {name[0].lower() + name[1:] for name in stub.call("methods")}
    assert offered == {*METHODS, "echo"}


def test_locks(stub: Stub, owners: Owners) -> None:
    a, b, node = owners.own("a"), owners.own("b"), [["node/n", "exclusive"]]
    calls: list[tuple[str, list[Any], Any]] = [
        ("Echo", ["hello"], "hello"),
        ("TryUpdateLocks", [a, node], []),
        ("UpdateLocksWaiting", [b, 0, node], [a]),
        ("HasPendingRequest", [b], True),
        ("ListLocks", [a], node),
        ("ListAllLocks", [], ["node/[lockset]", "node/n"]),
        ("ListAllLocksOwners", [], [["node/[lockset]", []], ["node/n", [[a, "exclusive"]]]]),
        (
            "ListLocksWaitingStatus",
            [],
            [[["node/[lockset]", []], ["node/n", [[a, "exclusive"]]]], [[0, b, node]]],
        ),
        ("FreeLocks", [b], None),
        ("DownGradeLocksLevel", [a, "node"], None),
        ("OpportunisticLockUnion", [b, [["node/n", "shared"], ["node/o", "shared"]]], [
            "node/o", "node/n",
        ]),
        ("GuardedOpportunisticLockUnion", [1, a, [["node/o", "shared"]]], ["node/o"]),
        ("IntersectLocks", [b, ["node/o"]], None),
        ("ListLocks", [b], [["node/o", "shared"]]),
        ("FreeLocksLevel", [a, "node"], None),
        ("FreeLocks", [b], None),
        ("CleanupLocks", [], None),
        ("ListAllLocks", [], []),
    ]  # fmt: skip
    for method, args, result in calls:
        assert stub.call(method, *args) == result, method


def test_the_whole_configuration_is_locked_written_and_read(stub: Stub, owners: Owners) -> None:
    a, b = owners.own("a"), owners.own("b")
    whole = stub.call("LockConfig", a, False)
    assert whole == config(stub)
    assert whole["instances"][INSTANCE]["osparams_private"] == {"password": "secret-0"}
    assert stub.call("LockConfig", b, True) is None
    assert stub.call("LockConfig", b, False) is None
    whole["nodes"][NODE]["tags"] = ["written"]
    del whole["disks"][uuid_of("disks", 3)]
    whole["instances"][uuid_of("instances", 3)]["disks"] = []
    before = config(stub)["serial_no"]
    assert stub.call("WriteConfig", a, whole) is None
    found = config(stub)
    assert found["serial_no"] == before + 1
    assert found["nodes"][NODE]["tags"] == ["written"]
    assert uuid_of("disks", 3) not in found["disks"]
    # Its short modifications do not wait for the holder.
    assert stub.call("AddTcpUdpPort", 11_003) is False
    assert stub.call("AllocatePort") is None
    assert stub.call("SetInstanceStatus", INSTANCE, "down", None, None) is None
    assert stub.call("RemoveInstance", OTHER) is False
    whole["nodes"][NODE]["tags"] = []
    assert stub.call("WriteConfigAndUnlock", a, whole) is True
    assert stub.call("WriteConfigAndUnlock", a, whole) is False
    assert config(stub)["nodes"][NODE]["tags"] == []
    missing = "Requested lock OwnExclusive on the configuration missing"
    assert refused(stub, "WriteConfig", a, whole) == ("GenericError", [missing])
    assert stub.call("LockConfig", b, True) == config(stub)
    assert stub.call("LockConfig", a, True) == config(stub)
    assert refused(stub, "WriteConfig", a, whole) == ("GenericError", [missing])
    for owner in (a, b):
        assert stub.call("UnlockConfig", owner) is None
    assert stub.call("VerifyConfig") is None
    assert stub.call("FlushConfig") is None
    assert stub.call("FlushConfigGroup", GROUP) is None
    assert refused(stub, "FlushConfigGroup", "nosuch")[0] == "ConfigurationError"


def test_flushed_means_that_the_file_has_it(stub: Stub, daemon: Daemon) -> None:
    assert stub.call("AddTcpUdpPort", 11_003) is True
    assert stub.call("FlushConfig") is None
    written = config_files.read_written(daemon.places.config)
    assert written is not None
    assert 11_003 in written["cluster"]["tcpudp_port_pool"]


def test_instances_and_disks(stub: Stub, job: ClientId) -> None:
    instance = copy.deepcopy(config(stub)["instances"][INSTANCE])
    port = stub.call("AllocatePort")
    instance |= {
        "uuid": NEW.format(1),
        "name": "new.example.com",
        "disks": [],
        "network_port": port,
        "serial_no": 1,
    }
    [nic] = instance["nics"]
    nic |= {"uuid": NEW.format(2), "mac": stub.call("GenerateMAC", job, NETWORK)}
    nic["ip"] = stub.call("GenerateIp", job, NETWORK)
    assert stub.call("ListReservedIps", job) == [["reserve", nic["ip"], NETWORK]]
    assert stub.call("AddInstance", instance, job, False) is True
    name, [text] = refused(stub, "AddInstance", instance, job, False)
    assert name == "ConfigurationError"
    assert nic["mac"] in text or "UUID" in text
    stub.call("DropAllReservations", job)
    added = config(stub)["instances"][instance["uuid"]]
    assert added["nics"] == [nic]
    assert config(stub)["networks"][NETWORK]["reservations"].count("1") == 1
    instance["hvparams"] = {"acpi": True}
    assert stub.call("AddInstance", instance, job, True) is True

    disk = copy.deepcopy(config(stub)["disks"][PLAIN])
    disk |= {"uuid": NEW.format(3), "logical_id": ["xenvg", "new.disk0"], "nodes": [NODE]}
    own, first = instance["uuid"], disk["uuid"]
    assert stub.call("AddInstanceDisk", own, disk, None, False) is True
    assert refused(stub, "AddInstanceDisk", own, disk, None, False)[0] == "ConfigurationError"
    second = disk | {"uuid": NEW.format(4), "logical_id": ["xenvg", "new.disk1"]}
    assert stub.call("AddInstanceDisk", own, second, 0, False) is True
    found = config(stub)
    assert found["instances"][own]["disks"] == [second["uuid"], first]
    assert [found["disks"][one]["iv_name"] for one in (second["uuid"], first)] == [
        "disk/0",
        "disk/1",
    ]
    assert stub.call("DetachInstanceDisk", own, second["uuid"]) is True
    assert config(stub)["disks"][first]["iv_name"] == "disk/0"
    assert stub.call("AttachInstanceDisk", own, second["uuid"], 1) is True
    assert refused(stub, "AttachInstanceDisk", own, second["uuid"], 0)[0] == "ReservationError"
    assert refused(stub, "AttachInstanceDisk", own, "nosuch", 0) == (
        "ConfigurationError",
        ["Disk nosuch doesn't exist"],
    )
    for one in (first, second["uuid"]):
        assert stub.call("RemoveInstanceDisk", own, one) is True
    assert config(stub)["instances"][own]["disks"] == []
    assert first not in config(stub)["disks"]

    assert stub.call("SetInstancePrimaryNode", own, SECOND) is True
    changed = stub.call("SetInstanceStatus", own, "down", False, "user")
    assert (changed["admin_state"], changed["disks_active"], changed["primary_node"]) == (
        "down",
        False,
        SECOND,
    )
    assert changed["osparams_private"] == {"password": "secret-0"}
    assert refused(stub, "SetInstanceStatus", "nosuch", "up", None, None) == (
        "ConfigurationError",
        ["Could not find instance with UUID nosuch"],
    )
    assert stub.call("RemoveInstance", own) is True
    found = config(stub)
    assert own not in found["instances"]
    assert port in found["cluster"]["tcpudp_port_pool"]
    assert "1" not in found["networks"][NETWORK]["reservations"]
    # As in Ganeti: whoever repeats it is done.
    assert stub.call("RemoveInstance", own) is True


@pytest.mark.parametrize(
    ("method", "container", "uuid", "field", "value"),
    [
        ("UpdateCluster", "cluster", "", "candidate_pool_size", 2),
        ("UpdateNode", "nodes", SECOND, "powered", False),
        ("UpdateInstance", "instances", OTHER, "os", "other"),
        ("UpdateNodeGroup", "nodegroups", GROUP, "alloc_policy", "last_resort"),
        ("UpdateNetwork", "networks", NETWORK, "tags", ["a"]),
        ("UpdateDisk", "disks", PLAIN, "name", "data"),
    ],
)
def test_an_object_is_replaced_if_nobody_has_changed_it(
    stub: Stub, method: str, container: str, uuid: str, field: str, value: Any
) -> None:
    def read() -> dict[str, Any]:
        found: dict[str, Any] = config(stub)[container]
        return found[uuid] if uuid else found

    before = read()
    serial, time = stub.call(method, before | {field: value})
    assert serial == before["serial_no"] + 1
    assert read() == before | {field: value, "serial_no": serial, "mtime": time}
    # The reply was lost, and the caller repeats itself.
    assert stub.call(method, before | {field: value}) == [serial, time]
    name, [text] = refused(stub, method, before)
    assert name == "ConfigurationError"
    expected = f"Configuration object updated since it has been read: {serial} != {serial - 1}"
    assert text == expected
    if uuid:
        assert refused(stub, method, before | {"uuid": "nosuch"}) == (
            "ConfigurationError",
            ["Configuration object unknown"],
        )


def test_reservations(stub: Stub, daemon: Daemon, owners: Owners) -> None:
    job, other = owners.own(4711), owners.own("other")
    secret = stub.call("GenerateDRBDSecret", job)
    assert len(bytes.fromhex(secret)) == 20
    assert stub.call("ReserveMAC", job, "aa:00:00:ff:00:01") is None
    used = config(stub)["instances"][OTHER]["nics"][0]["mac"]
    assert refused(stub, "ReserveMAC", job, used) == ("ReservationError", ["MAC already in use"])
    assert refused(stub, "ReserveMAC", other, "aa:00:00:ff:00:01") == (
        "ReservationError",
        ["Duplicate reservation for resource 'aa:00:00:ff:00:01'"],
    )
    assert stub.call("GenerateMAC", job, None).startswith("aa:00:00:")
    assert stub.call("ReserveLV", job, "xenvg/mine") is None
    assert stub.call("ReserveIp", job, NETWORK, "10.128.0.77", True) is None
    assert stub.call("ReleaseIp", other, NETWORK, "10.128.0.78") is None
    assert refused(stub, "ReserveIp", job, NETWORK, "10.128.0.254", True) == (
        "ReservationError",
        ["IP is externally reserved"],
    )
    assert refused(stub, "GenerateIp", job, "nosuch") == (
        "ReservationError",
        ["Network 'nosuch' not found"],
    )
    assert stub.call("ListReservedIps", job) == [["reserve", "10.128.0.77", NETWORK]]
    # On disk before it was announced.
    stored = decode(daemon.places.reservations.read_bytes())
    assert [owner.identifier for owner, _ in stored.macs] == [4711]
    assert stored.secrets[0][1] == (secret,)
    assert stub.call("CommitTemporaryIps", job) is None
    pool = config(stub)["networks"][NETWORK]["reservations"]
    assert pool[77] == "1"
    assert stub.call("DropAllReservations", job) is None
    assert stub.call("ListReservedIps", job) == []
    assert stub.call("CommitReleaseTemporaryIp", NETWORK, "10.128.0.77") is None
    assert "1" not in config(stub)["networks"][NETWORK]["reservations"]


def test_minors(stub: Stub) -> None:
    before = stub.call("ComputeDRBDMap")
    assert before[NODE]["0"] == DISK
    new = NEW.format(7)
    minors = stub.call("AllocateDRBDMinor", new, [NODE, SECOND])
    assert minors == [1, 1]
    found = stub.call("ComputeDRBDMap")
    assert (found[NODE]["1"], found[SECOND]["1"]) == (new, new)
    assert refused(stub, "AllocateDRBDMinor", new, [NODE, NODE])[0] == "ReservationError"
    assert stub.call("ReleaseDRBDMinors", new) is None
    assert stub.call("ComputeDRBDMap") == before


def test_the_holder_of_the_lock_commits_addresses_and_loses_nothing(
    stub: Stub, job: ClientId
) -> None:
    whole = stub.call("LockConfig", job, False)
    address = stub.call("GenerateIp", job, NETWORK)
    assert stub.call("CommitTemporaryIps", job) is None
    whole["nodes"][NODE]["tags"] = ["with-the-lock"]
    # It has read the network before its own commit.
    assert stub.call("WriteConfigAndUnlock", job, whole) is True
    found = config(stub)
    assert found["nodes"][NODE]["tags"] == ["with-the-lock"]
    assert found["networks"][NETWORK]["reservations"].count("1") == 1
    assert stub.call("CommitReleaseTemporaryIp", NETWORK, address) is None


def test_wrong_owners_and_wrong_configurations_change_nothing(stub: Stub, job: ClientId) -> None:
    nobody: ClientId = ["x", "/nowhere/lock", 1]
    before = config(stub)
    calls: list[tuple[str, list[Any]]] = [
        ("LockConfig", [nobody, False]),
        ("GenerateMAC", [nobody, None]),
        ("CommitTemporaryIps", [nobody]),
    ]
    for method, args in calls:
        name, [text] = refused(stub, method, *args)
        assert name == "GenericError"
        assert "lock file" in text
    whole = stub.call("LockConfig", job, False)
    for wrong in (
        whole | {"version": 2_000_000},
        whole | {"nodes": []},
        whole | {"nodes": {NODE: whole["nodes"][NODE] | {"group": "nosuch"}}},
        whole | {"cluster": whole["cluster"] | {"uuid": "other"}},
    ):
        assert refused(stub, "WriteConfig", job, wrong)[0] == "ConfigurationError"
    assert config(stub) == before
    assert stub.call("UnlockConfig", job) is None


def test_the_end_of_a_cluster(stub: Stub, owners: Owners) -> None:
    job = owners.own("destroyer")
    missing = "Cluster destruction requested without owning BGL exclusively"
    assert refused(stub, "PrepareClusterDestruction", job) == ("GenericError", [missing])
    assert stub.call("TryUpdateLocks", job, [["cluster/BGL", "exclusive"]]) == []
    assert stub.call("PrepareClusterDestruction", job) is None
    assert stub.call("ListLocks", job) == []
    held = dict(stub.call("ListAllLocksOwners"))
    assert [owner[0] for owner, _ in held["cluster/BGL"]] == ["config_store-destruction"]
    assert config(stub)["cluster"]["master_node"] == ""
