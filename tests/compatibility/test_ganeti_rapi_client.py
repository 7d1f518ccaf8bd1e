"""Ganeti's own client of the remote API, unmodified, over TLS against a daemon.

It is Debian's package python3-ganeti-rapi, which `make test` unpacks. Every call of it is made.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rapi.served import Served, password

from ganger.storage.access import rapi_certificates

DATA = Path(__file__).parent / "data"
NODE, INSTANCE, GROUP, NETWORK = "node1.example.com", "inst1.example.com", "default", "net1"
ALLOCATION = {"mode": "create", "name": "new", "disk_template": "diskless", "disks": [], "nics": []}
TAGS = ["a", "b"]

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a call, and its arguments."""


def call(name: str, *arguments: Any, **named: Any) -> Call:
    return name, arguments, named


def tag_calls(what: str, kind: str, name: str | None) -> list[tuple[Call, dict[str, Any]]]:
    """The calls that change tags, with the opcodes that they must submit."""
    target = () if name is None else (name,)
    op = {"kind": kind, "tags": TAGS, "dry_run": False, **({"name": name} if name else {})}
    return [
        (call(f"Add{what}Tags", *target, TAGS), {"OP_ID": "OP_TAGS_SET", **op}),
        (call(f"Delete{what}Tags", *target, TAGS), {"OP_ID": "OP_TAGS_DEL", **op}),
    ]


SUBMITTED: list[tuple[Call, dict[str, Any]]] = [
    (
        call("ModifyCluster", candidate_pool_size=7),
        {"OP_ID": "OP_CLUSTER_SET_PARAMS", "candidate_pool_size": 7},
    ),
    *tag_calls("Cluster", "cluster", None),
    *tag_calls("Node", "node", NODE),
    *tag_calls("Instance", "instance", INSTANCE),
    *tag_calls("Group", "nodegroup", GROUP),
    *tag_calls("Network", "network", NETWORK),
    (
        call("CreateGroup", "g1", alloc_policy="last_resort", dry_run=True),
        {
            "OP_ID": "OP_GROUP_ADD",
            "group_name": "g1",
            "alloc_policy": "last_resort",
            "dry_run": True,
        },
    ),
    (
        call("ModifyGroup", GROUP, alloc_policy="unallocable"),
        {"OP_ID": "OP_GROUP_SET_PARAMS", "group_name": GROUP, "alloc_policy": "unallocable"},
    ),
    (call("DeleteGroup", "g1"), {"OP_ID": "OP_GROUP_REMOVE", "group_name": "g1"}),
    (
        call("RenameGroup", "g1", "g2"),
        {"OP_ID": "OP_GROUP_RENAME", "group_name": "g1", "new_name": "g2"},
    ),
    (
        call("AssignGroupNodes", "g1", [NODE], force=True),
        {"OP_ID": "OP_GROUP_ASSIGN_NODES", "group_name": "g1", "nodes": [NODE], "force": True},
    ),
    (
        call("CreateNetwork", "n1", "10.1.0.0/24", gateway="10.1.0.1"),
        {
            "OP_ID": "OP_NETWORK_ADD",
            "network_name": "n1",
            "network": "10.1.0.0/24",
            "gateway": "10.1.0.1",
            "tags": [],
        },
    ),
    (
        call("CreateNetwork", "n1", "10.1.0.0/24", tags="a,b", add_reserved_ips="10.1.0.7"),
        {"OP_ID": "OP_NETWORK_ADD", "tags": TAGS, "add_reserved_ips": ["10.1.0.7"]},
    ),
    (
        call("ConnectNetwork", "n1", GROUP, "bridged", "br0", vlan=".7"),
        {
            "OP_ID": "OP_NETWORK_CONNECT",
            "network_name": "n1",
            "group_name": GROUP,
            "network_mode": "bridged",
            "network_link": "br0",
            "network_vlan": ".7",
        },
    ),
    (
        call("DisconnectNetwork", "n1", GROUP, dry_run=True),
        {"OP_ID": "OP_NETWORK_DISCONNECT", "network_name": "n1", "dry_run": True},
    ),
    (
        call("ModifyNetwork", "n1", mac_prefix="aa:bb:cc"),
        {"OP_ID": "OP_NETWORK_SET_PARAMS", "network_name": "n1", "mac_prefix": "aa:bb:cc"},
    ),
    (call("DeleteNetwork", "n1"), {"OP_ID": "OP_NETWORK_REMOVE", "network_name": "n1"}),
    (
        call("SetNodeRole", NODE, "drained", force=True, auto_promote=True),
        {
            "OP_ID": "OP_NODE_SET_PARAMS",
            "node_name": NODE,
            "drained": True,
            "force": True,
            "auto_promote": True,
        },
    ),
    (
        call("ModifyNode", NODE, vm_capable=False),
        {"OP_ID": "OP_NODE_SET_PARAMS", "node_name": NODE, "vm_capable": False},
    ),
]
"""Calls that submit a job, and what its opcode must have."""

REFUSED: list[tuple[Call, str]] = [
    (call("GetOperatingSystems"), "OP_OS_DIAGNOSE"),
    (call("GetInstanceInfo", INSTANCE, static=True), "OP_INSTANCE_QUERY_DATA"),
    (call("InstancesMultiAlloc", [ALLOCATION]), "OP_INSTANCE_MULTI_ALLOC"),
    (
        call("CreateInstance", "create", "new", "plain", [{"size": 1024}], [{}], os="noop"),
        "OP_INSTANCE_CREATE",
    ),
    (call("DeleteInstance", INSTANCE, shutdown_timeout=3), "OP_INSTANCE_REMOVE"),
    (call("ModifyInstance", INSTANCE, custom_beparams={"vcpus": 2}), "OP_INSTANCE_SET_PARAMS"),
    (call("ActivateInstanceDisks", INSTANCE, ignore_size=True), "OP_INSTANCE_ACTIVATE_DISKS"),
    (call("DeactivateInstanceDisks", INSTANCE, force=True), "OP_INSTANCE_DEACTIVATE_DISKS"),
    (call("RecreateInstanceDisks", INSTANCE, disks=[0]), "OP_INSTANCE_RECREATE_DISKS"),
    (call("GrowInstanceDisk", INSTANCE, 0, 512, wait_for_sync=True), "OP_INSTANCE_GROW_DISK"),
    (
        call("RebootInstance", INSTANCE, reboot_type="soft", ignore_secondaries=True),
        "OP_INSTANCE_REBOOT",
    ),
    (call("ShutdownInstance", INSTANCE, no_remember=True, timeout=9), "OP_INSTANCE_SHUTDOWN"),
    (call("StartupInstance", INSTANCE, dry_run=True), "OP_INSTANCE_STARTUP"),
    (
        call("ReinstallInstance", INSTANCE, os="noop", no_startup=True, osparams={"a": "b"}),
        "OP_INSTANCE_SHUTDOWN",
    ),
    (call("ReplaceInstanceDisks", INSTANCE, disks=[0, 1]), "OP_INSTANCE_REPLACE_DISKS"),
    (call("PrepareExport", INSTANCE, "local"), "OP_BACKUP_PREPARE"),
    (call("ExportInstance", INSTANCE, "local", NODE, shutdown=True), "OP_BACKUP_EXPORT"),
    (call("MigrateInstance", INSTANCE, mode="live", cleanup=False), "OP_INSTANCE_MIGRATE"),
    (call("FailoverInstance", INSTANCE, ignore_consistency=True), "OP_INSTANCE_FAILOVER"),
    (call("RenameInstance", INSTANCE, "new.example.com"), "OP_INSTANCE_RENAME"),
    (call("EvacuateNode", NODE, iallocator="hail", mode="all"), "OP_NODE_EVACUATE"),
    (call("MigrateNode", NODE, mode="live", target_node="other"), "OP_NODE_MIGRATE"),
    (call("PowercycleNode", NODE, force=True), "OP_NODE_POWERCYCLE"),
    (call("GetNodeStorageUnits", NODE, "lvm-vg", "name,size"), "OP_NODE_QUERY_STORAGE"),
    (
        call("ModifyNodeStorageUnits", NODE, "lvm-vg", "xenvg", allocatable=True),
        "OP_NODE_MODIFY_STORAGE",
    ),
    (call("RepairNodeStorageUnits", NODE, "lvm-vg", "xenvg"), "OP_REPAIR_NODE_STORAGE"),
]
"""Calls whose opcode nothing here can run."""

IN_TESTS = {
    "GetVersion", "GetFeatures", "GetInfo", "GetClusterTags", "GetInstances", "GetInstance",
    "GetInstanceTags", "GetInstanceConsole", "GetJobs", "GetJobStatus", "WaitForJobCompletion",
    "WaitForJobChange", "CancelJob", "GetNodes", "GetNode", "GetNodeRole", "GetNodeTags",
    "GetNetworks", "GetNetwork", "GetNetworkTags", "GetGroups", "GetGroup", "GetGroupTags",
    "Query", "QueryFields", "GetFilters", "GetFilter", "AddFilter", "ReplaceFilter",
    "DeleteFilter",
    "RedistributeConfig",
    "InstanceAllocation",
}  # fmt: skip
"""Calls that tests below make."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    data = folder / "data"
    data.mkdir(mode=0o700)
    config = json.loads((DATA / "config.data").read_text())
    config["filters"] = {}
    (data / "config.data").write_text(json.dumps(config))
    (data / "config.data").chmod(0o600)
    shutil.copytree(DATA / "queue", data / "queue")
    with Served(folder, has_tls=True) as daemon:
        yield daemon


def connect(library: Any, served: Served, user: str | None = "writer", **options: Any) -> Any:
    """A client of a user, which checks certificate and name."""
    own = {"cafile": str(served.places.rapi_certificate), "verify_hostname": True}
    config = library.GenericCurlConfig(proxy="", timeout=30, **{**own, **options})
    secret = None if user is None else password(user)
    return library.GanetiRapiClient("127.0.0.1", served.port, user, secret, curl_config_fn=config)


@pytest.fixture(scope="module")
def client(library: Any, served: Served) -> Any:
    return connect(library, served)


@pytest.fixture
def paused(client: Any) -> Iterator[None]:
    """No job starts; all of them are canceled in the end."""
    rule = client.AddFilter(0, [], "PAUSE")
    yield
    for job in client.Query("job", ["id"], ["==", "status", "queued"])["data"]:
        client.CancelJob(job[0][1])
    client.DeleteFilter(rule)


def refusal(library: Any, code: int, function: Any, *arguments: Any, **named: Any) -> str:
    """The text of the error with which a call must end."""
    with pytest.raises(library.GanetiApiError) as caught:
        function(*arguments, **named)
    assert caught.value.code == code, caught.value
    return str(caught.value)


def done(client: Any, job_id: int) -> dict[str, Any]:
    """The job, which must end in success."""
    assert client.WaitForJobCompletion(job_id, period=0, retries=1_000), client.GetJobStatus(job_id)
    found: dict[str, Any] = client.GetJobStatus(job_id)
    return found


def test_every_call_of_the_client_is_made_here(library: Any) -> None:
    offered = {name for name in dir(library.GanetiRapiClient) if name[0].isupper()}
    submitted = {one[0] for one, _ in SUBMITTED}
    refused = {one[0] for one, _ in REFUSED}
    assert submitted | refused | IN_TESTS == offered - {"USER_AGENT"}


@pytest.mark.usefixtures("paused")
@pytest.mark.parametrize(("made", "expected"), SUBMITTED)
def test_a_call_submits_its_opcode(client: Any, made: Call, expected: dict[str, Any]) -> None:
    name, arguments, named = made
    job = client.GetJobStatus(getattr(client, name)(*arguments, **named))
    [op] = job["ops"]
    assert op | expected == op
    assert job["status"] == "queued"


@pytest.mark.parametrize(("made", "op_id"), REFUSED)
def test_a_call_whose_opcode_nothing_can_run_ends_with_an_error(
    library: Any, client: Any, made: Call, op_id: str
) -> None:
    name, arguments, named = made
    jobs = client.GetJobs()
    text = refusal(library, 501, getattr(client, name), *arguments, **named)
    assert text == (
        f"501 {op_id}: this opcode is known, but nothing on this system can run it: "
        "Server does not support this operation"
    )
    assert client.GetJobs() == jobs


@pytest.mark.usefixtures("paused")
def test_a_reason_begins_the_trail(client: Any) -> None:
    job = client.GetJobStatus(client.DeleteNetwork("n1", reason="moving out"))
    trail = job["ops"][0]["reason"]
    assert [entry[:2] for entry in trail] == [
        ["gnt:user", "moving out"],
        ["gnt:library:rlib2:networks_name", ""],
        ["gnt:opcode:network_remove", f"job={job['id']};index=0"],
    ]
    assert all(entry[2] > 1_700_000_000_000_000_000 for entry in trail)


def test_the_cluster(client: Any) -> None:
    assert client.GetVersion() == 2
    assert "instance-create-reqv1" in client.GetFeatures()
    info = client.GetInfo()
    assert (info["name"], info["master"]) == ("cluster.example.com", NODE)
    assert type(info["ctime"]) is float
    assert {"vg_name", "drbd_helper"} <= info.keys()


def test_nodes(library: Any, client: Any) -> None:
    assert client.GetNodes() == [NODE]
    [whole] = client.GetNodes(bulk=True)
    assert client.GetNode(NODE) == whole
    assert whole["pinst_cnt"] == 4
    assert whole["secondary_ip"] == whole["sip"]
    assert client.GetNodeRole(NODE) == library.NODE_ROLE_MASTER
    assert client.GetNodeTags(NODE) == []
    for function in (client.GetNode, client.GetNodeRole):
        assert refusal(library, 404, function, "nope").startswith("404 Not Found: ")
    assert "Node name nope not found" in refusal(library, 500, client.GetNodeTags, "nope")
    text = refusal(library, 400, client.SetNodeRole, NODE, "king")
    assert text.startswith("400 Can&#x27;t set &#x27;king&#x27; role: ")


def test_instances(library: Any, client: Any) -> None:
    names = client.GetInstances()
    assert names == [f"inst{number}.example.com" for number in (1, 2, 3, 4)]
    whole = client.GetInstances(bulk=True)
    assert [one["name"] for one in whole] == names
    assert client.GetInstance(INSTANCE) == whole[0]
    assert whole[0]["beparams"]["memory"] == whole[0]["beparams"]["maxmem"] == 128
    assert client.GetInstanceTags(INSTANCE) == ["prod", "web"]
    refusal(library, 404, client.GetInstance, "nope")
    text = refusal(library, 503, client.GetInstanceConsole, INSTANCE)
    assert text.startswith("503 Instance console unavailable: ")
    refusal(library, 500, client.GetInstanceConsole, "nope")
    assert client.InstanceAllocation("create", "new", "diskless", [], []) == ALLOCATION


def test_groups_are_added_changed_and_removed(library: Any, client: Any) -> None:
    names = client.GetGroups()
    assert GROUP in names
    assert [group["name"] for group in client.GetGroups(bulk=True)] == names
    done(client, client.CreateGroup("alpha", alloc_policy="unallocable"))
    assert client.GetGroup("alpha")["alloc_policy"] == "unallocable"
    done(client, client.ModifyGroup("alpha", alloc_policy="preferred", reason="open"))
    done(client, client.AddGroupTags("alpha", ["y", "x"]))
    assert client.GetGroupTags("alpha") == ["x", "y"]
    done(client, client.DeleteGroupTags("alpha", ["y"]))
    done(client, client.RenameGroup("alpha", "beta"))
    found = client.GetGroup("beta")
    assert (found["alloc_policy"], found["tags"]) == ("preferred", ["x"])
    refusal(library, 404, client.GetGroup, "alpha")
    done(client, client.DeleteGroup("beta"))
    assert client.GetGroups() == names


def test_networks_are_added_connected_and_removed(library: Any, client: Any) -> None:
    names = client.GetNetworks()
    assert names == [NETWORK]
    done(client, client.CreateNetwork("n2", "10.2.0.0/28", gateway="10.2.0.1", tags="t"))
    found = client.GetNetwork("n2")
    assert (found["network"], found["gateway"], found["map"]) == (
        "10.2.0.0/28",
        "10.2.0.1",
        "XX.............X",
    )
    assert client.GetNetworkTags("n2") == ["t"]
    done(client, client.ConnectNetwork("n2", GROUP, "bridged", "br0"))
    assert client.GetNetwork("n2")["group_list"] == [[GROUP, "bridged", "br0", ""]]
    done(client, client.ModifyNetwork("n2", mac_prefix="aa:bb:cc"))
    done(client, client.DisconnectNetwork("n2", GROUP))
    assert [one["name"] for one in client.GetNetworks(bulk=True)] == ["n2", NETWORK]
    done(client, client.DeleteNetwork("n2"))
    assert client.GetNetworks() == names
    refusal(library, 404, client.GetNetwork, "n2")


def test_tags_of_the_cluster(library: Any, client: Any) -> None:
    before = client.GetClusterTags()
    done(client, client.AddClusterTags(["one", "two"]))
    assert client.GetClusterTags() == sorted([*before, "one", "two"])
    done(client, client.AddClusterTags(["dry"], dry_run=True))
    done(client, client.DeleteClusterTags(["one", "two"]))
    assert client.GetClusterTags() == before
    refusal(library, 400, client.DeleteClusterTags, [])


def test_the_cluster_is_modified(library: Any, client: Any) -> None:
    done(client, client.ModifyCluster(candidate_pool_size=9, maintain_node_health=False))
    assert client.GetInfo()["candidate_pool_size"] == 9
    text = refusal(library, 403, client.ModifyCluster, compression_tools=["gzip"])
    assert text.startswith("403 The parameter compression_tools cannot be set via RAPI: ")
    text = refusal(library, 400, client.ModifyCluster, nonsense=1)
    assert text.startswith("400 Invalid body parameters: OP_CLUSTER_SET_PARAMS: unknown parameter")
    text = refusal(library, 400, client.ModifyCluster, candidate_pool_size="many")
    assert "candidate_pool_size" in text


def test_the_files_of_the_configuration_are_written_anew(served: Served, client: Any) -> None:
    name = served.places.ssconf / "ssconf_cluster_name"
    name.unlink()
    job = done(client, client.RedistributeConfig(reason="lost"))
    assert job["summary"] == ["CLUSTER_REDIST_CONF"]
    assert name.read_text() == "cluster.example.com\n"


def test_jobs(library: Any, client: Any) -> None:
    ids = client.GetJobs()
    assert ids == sorted(ids)
    assert all(type(job_id) is int for job_id in ids)
    assert [job["id"] for job in client.GetJobs(bulk=True)] == ids
    unknown = client.GetJobStatus(987_654)
    assert (unknown["id"], unknown["status"]) == (987_654, None)
    assert client.CancelJob(987_654) == [False, "Job 987654 not found in queue"]
    refusal(library, 404, client.WaitForJobChange, 987_654, ["status"], None, None)
    refusal(library, 404, client.GetJobStatus, "one")
    refusal(library, 400, client.WaitForJobChange, ids[0], None, None, None)
    found = client.WaitForJobChange(ids[0], ["id", "status"], [ids[0], "success"], None)
    assert found == {"job_info": [ids[0], "success"], "log_entries": []}


def test_a_waiting_job_is_canceled_and_its_follower_hears_of_it(client: Any) -> None:
    rule = client.AddFilter(0, [["opcode", ["==", "OP_ID", "OP_NETWORK_REMOVE"]]], "PAUSE")
    job_id = client.DeleteNetwork("n9")
    now = client.WaitForJobChange(job_id, ["status", "summary"], None, None)
    assert now["job_info"] == ["queued", ["NETWORK_REMOVE(n9)"]]
    assert client.CancelJob(job_id) == [True, f"Dequeued job {job_id}"]
    then = client.WaitForJobChange(job_id, ["status"], ["queued"], None)
    assert then == {"job_info": ["canceled"], "log_entries": []}
    assert client.WaitForJobCompletion(job_id, period=0) is False
    client.DeleteFilter(rule)


def test_a_failed_job_says_why(client: Any) -> None:
    job_id = client.DeleteNetwork("n9")
    assert client.WaitForJobCompletion(job_id, period=0) is False
    job = client.GetJobStatus(job_id)
    assert (job["status"], job["opresult"][0][0]) == ("error", "OpPrereqError")


def test_filter_rules(library: Any, client: Any) -> None:
    predicates = [["jobid", [">", "id", "watermark"]]]
    uuid = client.AddFilter(7, predicates, ["RATE_LIMIT", 3], [("me", "why", 5)])
    rule = client.GetFilter(uuid)
    assert list(rule) == [
        "watermark", "priority", "predicates", "action", "reason_trail", "uuid",
    ]  # fmt: skip
    assert (rule["priority"], rule["predicates"]) == (7, predicates)
    assert rule["action"] == ["RATE_LIMIT", 3]
    assert [entry[:2] for entry in rule["reason_trail"]] == [
        ["me", "why"], ["gnt:client", ""], ["luxid", ""],
    ]  # fmt: skip
    assert client.GetFilters() == [uuid]
    assert client.GetFilters(bulk=True) == [rule]
    assert client.ReplaceFilter(uuid, 1, [], "CONTINUE") == uuid
    assert client.GetFilter(uuid)["action"] == "CONTINUE"
    assert client.DeleteFilter(uuid) is None
    refusal(library, 404, client.GetFilter, uuid)
    text = refusal(library, 500, client.DeleteFilter, uuid)
    assert text.startswith(f"500 Filter rule with UUID {uuid} does not exist: ")
    for function, arguments in (
        (client.AddFilter, (0, [], "FROB")),
        (client.AddFilter, (-1, [], "PAUSE")),
        (client.AddFilter, (0, [], ["RATE_LIMIT", 0])),
        (client.AddFilter, (0, [["color", None]], "PAUSE")),
        (client.AddFilter, (0, [["opcode", ["??", "a", 1]]], "PAUSE")),
        (client.AddFilter, (0, [["opcode", ["=~", "OP_ID", "("]]], "PAUSE")),
    ):
        text = refusal(library, 502, function, *arguments)
        assert text.startswith("502 Failed to parse request: ")
    assert "Type is &#x27;str&#x27;" in refusal(library, 400, client.AddFilter, "high", [], "PAUSE")
    text = refusal(library, 500, client.ReplaceFilter, "not-a-uuid", 0, [], "PAUSE")
    assert text.startswith("500 Unable to parse UUID: ")


def test_queries(library: Any, client: Any) -> None:
    found = client.Query("node", ["name", "role", "mfree", "frob"])
    assert found["data"] == [[[0, NODE], [0, "M"], [2, None], [1, None]]]
    assert [field["kind"] for field in found["fields"]] == ["text", "text", "unit", "unknown"]
    running = client.Query("instance", ["name"], ["=~", "name", "^inst[12]"])
    assert running["data"] == [[[0, f"inst{number}.example.com"]] for number in (1, 2)]
    assert client.Query("job", ["status"], ["==", "id", 1])["data"] == [[[0, "success"]]]
    assert client.Query("export", ["node", "export"])["data"] == [[[0, NODE], [2, None]]]
    for what in ("group", "network", "lock", "filter"):
        assert client.Query(what, ["name" if what != "filter" else "uuid"])["fields"]
    names = [field["name"] for field in client.QueryFields("job")["fields"]]
    assert names == sorted(names)
    [field] = client.QueryFields("export", ["export"])["fields"]
    assert (field["title"], field["kind"]) == ("Export", "text")
    for what in ("cluster", "os"):
        assert "not supported" in refusal(library, 500, client.Query, what, ["name"])
        assert "not supported" in refusal(library, 500, client.QueryFields, what)
    for what in ("extstorage", "frob"):
        assert "Can&#x27;t parse value" in refusal(library, 502, client.Query, what, ["x"])
    assert "Can&#x27;t find field" in refusal(
        library, 500, client.Query, "node", ["name"], ["==", "frob", 1]
    )
    assert "Failed to parse request" in refusal(
        library, 502, client.Query, "node", ["name"], ["??", "name", 1]
    )
    assert "unknown_entity" in refusal(
        library, 500, client.Query, "node", ["name"], ["==", "name", "nope"]
    )
    refusal(library, 400, client.Query, "node", "name")


def test_who_may_do_what(library: Any, served: Served) -> None:
    reader, tagger = (connect(library, served, user) for user in ("reader", "tagger"))
    for one in (reader, tagger):
        assert one.GetVersion() == 2
        assert one.GetJobs()
        refusal(library, 403, one.DeleteNetwork, "n9")
    refusal(library, 403, reader.AddClusterTags, ["no"])
    refusal(library, 403, reader.CancelJob, 1)
    done(tagger, tagger.AddClusterTags(["yes"]))
    stranger = connect(library, served, None)
    assert refusal(library, 401, stranger.GetVersion).startswith("401 Unauthorized: ")
    wrong = connect(library, served, "reader")
    wrong._password = "guess"
    assert refusal(library, 401, wrong.GetVersion).startswith("401 Unauthorized: ")


def test_a_certificate_of_somebody_else_is_noticed(
    library: Any, served: Served, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    rapi_certificates.create(other, ["localhost"], days=1)
    client = connect(library, served, cafile=str(other))
    with pytest.raises(library.CertificateError):
        client.GetVersion()


def test_no_daemon_is_an_error_of_the_connection(library: Any, served: Served) -> None:
    client = connect(library, served)
    client._base_url = "https://127.0.0.1:1"
    with pytest.raises(library.GanetiApiError):
        client.GetVersion()
