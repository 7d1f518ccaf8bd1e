"""What tests of queries share: recorded answers, and a cluster with all kinds of relations."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "compatibility" / "data"
RECORDED: dict[str, Any] = json.loads((DATA / "config.data").read_text())

GROUP = "aad6daca-256c-4de9-85af-9ccb6e387e22"
NETWORK = "a2afc70c-965c-43d0-ba66-2bf9a40b3915"


def recorded_request(name: str) -> list[Any]:
    """The arguments of a recorded LUXI request."""
    found: list[Any] = json.loads((DATA / "luxi" / f"{name}.json").read_text())["request"]["args"]
    return found


def recorded(name: str) -> Any:
    """The result of a recorded LUXI request."""
    return json.loads((DATA / "luxi" / f"{name}.json").read_text())["response"]["result"]


def recorded_web(name: str) -> Any:
    """The body of a recorded answer of the web interface."""
    return json.loads((DATA / "rapi" / f"{name}.json").read_text())["response"]


def node(uuid: str, name: str, **more: Any) -> dict[str, Any]:
    """A node of the recorded cluster's first group."""
    flags = {"master_candidate": False, "offline": False, "drained": False}
    return {"uuid": uuid, "name": name, "group": GROUP, "ndparams": {}, **flags, **more}


def larger() -> dict[str, Any]:
    """The recorded cluster with more nodes, and an instance on DRBD disks in two networks."""
    document = copy.deepcopy(RECORDED)
    document["nodes"] |= {
        "n2": node("n2", "node2.example.com", master_candidate=True, ndparams={"ssh_port": 2222}),
        "n10": node("n10", "node10.example.com", offline=True),
        "n3": node("n3", "node3.example.com", drained=True, group="rack"),
    }
    document["nodegroups"]["rack"] = {
        "uuid": "rack",
        "name": "rack10",
        "ndparams": {"oob_program": "/bin/oob", "cpu_speed": 2},
        "networks": {NETWORK: {"mode": "openvswitch", "link": "switch1"}},
        "ipolicy": {"vcpu-ratio": 2},
    }
    volume = {"dev_type": "plain", "logical_id": ["vg", "data"], "size": 1024, "nodes": ["n2"]}
    drbd = {
        "uuid": "d1",
        "dev_type": "drbd",
        "logical_id": ["n2", "n3", 11000, 0, 1, "5ec"],
        "children": [volume],
        "size": 1024,
        "name": "first",
        "spindles": 2,
        "nodes": ["n2", "n3"],
    }
    document["disks"]["d1"] = drbd
    document["disks"]["d2"] = {"uuid": "d2", "dev_type": "plain", "size": 512, "nodes": ["n2"]}
    document["instances"]["i10"] = {
        "uuid": "i10",
        "name": "inst10.example.com",
        "primary_node": "n2",
        "hypervisor": "kvm",
        "os": "debian",
        "hvparams": {"acpi": False},
        "beparams": {"vcpus": 3},
        "admin_state": "down",
        "network_port": 11001,
        "disks": ["d1", "d2"],
        "nics": [
            {"uuid": "x", "mac": "aa:00:00:00:00:01", "nicparams": {"mode": "bridged"}},
            {
                "uuid": "y",
                "mac": "aa:00:00:00:00:02",
                "ip": "10.77.1.9",
                "name": "lan",
                "network": NETWORK,
                "nicparams": {"mode": "openvswitch", "vlan": "7"},
            },
        ],
    }
    document["instances"]["i0"] = {"uuid": "i0", "name": "later", "forthcoming": True}
    return document
