"""What monitors a Ganeti cluster works where the master node is the machine of the daemon.

Two programs are played as they read RAPI: Ganeti's exporter for Prometheus (every node, instance
and job in bulk, each number as a gauge, and htools through RAPI), and gnt-monitoring (the memory of
each node). Neither takes null for a number. Ganeti's htools run themselves, over LUXI and RAPI.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from tests.compatibility import test_ganeti_tools_in_haskell as htools
from tests.rapi.served import Served, password

DATA = Path(__file__).parent / "data"
RECORDED = json.loads((DATA / "rapi" / "025-node.json").read_text())["response"]
HOST = os.uname().nodename
OTHER = "other.example.com"

NUMBERS_OF_NODES = ("ctotal", "dfree", "dtotal", "mfree", "mtotal", "pinst_cnt", "sinst_cnt")
NUMBERS_OF_INSTANCES = ("oper_vcpus", "oper_ram")


def configuration() -> dict[str, Any]:
    """The recorded cluster, as if it had been recorded on this machine."""
    text = (DATA / "config.data").read_text().replace("node1.example.com", HOST)
    found: dict[str, Any] = json.loads(text)
    found["filters"] = {}
    return found


def start(folder: Path, config: dict[str, Any]) -> Served:
    """A daemon on this configuration, which is not up yet."""
    daemon = Served(folder)
    daemon.data.mkdir(mode=0o700)
    daemon.places.config.write_text(json.dumps(config))
    daemon.places.config.chmod(0o600)
    return daemon


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with start(tmp_path_factory.mktemp("own-host"), configuration()) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def with_other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A daemon whose cluster has a second node, which is online and has no node daemon."""
    config = configuration()
    (own,) = config["nodes"].values()
    other = own | {"uuid": "other", "name": OTHER, "primary_ip": "10.77.0.2"}
    config["nodes"]["other"] = other | {"secondary_ip": "10.77.0.2", "master_candidate": False}
    with start(tmp_path_factory.mktemp("other"), config) as daemon:
        yield daemon


class Exporter:
    """Collects as Ganeti's exporter for Prometheus does."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._cluster = served.get("/2/info", user="reader")["name"]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        nodes = self._bulk("nodes")
        instances = self._bulk("instances")
        jobs = self._bulk("jobs")
        for number in NUMBERS_OF_NODES:
            yield self._gauge("node", number, {one["name"]: one[number] for one in nodes})
        for number in NUMBERS_OF_INSTANCES:
            values = {one["name"]: one[number] if one["oper_state"] else 0 for one in instances}
            yield self._gauge("instance", number, values)
        for one in nodes:
            own = [inst for inst in instances if inst["pnode"] == one["name"]]
            vcpus = sum(inst["oper_vcpus"] for inst in own if inst["oper_state"])
            yield self._gauge(f"node_{one['serial_no']}", "vcpus", {one["name"]: vcpus})
        offline = len([one for one in nodes if one["offline"]])
        yield self._gauge("cluster", "offline_nodes", {"": offline})
        started = [job for job in jobs if job["start_ts"] and job["received_ts"]]
        waits = {str(job["id"]): job["start_ts"][0] - job["received_ts"][0] for job in started}
        yield self._gauge("job", "wait_time", waits)

    def _bulk(self, what: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._served.get(f"/2/{what}?bulk=1", user="reader")
        return found

    def _gauge(self, kind: str, name: str, values: dict[str, float]) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(f"ganeti_{kind}_{name}", name, labels=["cluster", "name"])
        for label, value in values.items():
            gauge.add_metric((self._cluster, label), value)
        return gauge


def scraped(served: Served) -> dict[str, float]:
    """What a scrape shows of this machine's node."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Exporter(served))
    text = generate_latest(registry).decode()
    pattern = rf'^ganeti_node_(\w+){{cluster="[^"]+",name="{re.escape(HOST)}"}} (\S+)$'
    return {name: float(value) for name, value in re.findall(pattern, text, re.MULTILINE)}


def test_the_own_node_has_the_types_of_the_recording(served: Served) -> None:
    found = served.get(f"/2/nodes/{HOST}")
    assert list(found) == list(RECORDED)
    # The time is a whole number only by chance.
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in RECORDED.items()
    }
    assert found == served.get("/2/nodes?bulk=1")[0] | {
        name: found[name] for name in ("mfree", "mnode", "dfree")
    }


def test_a_scrape_of_the_exporter_has_all_numbers(served: Served) -> None:
    served.done("POST", "/2/jobs", {"ops": [{"OP_ID": "OP_TEST_DELAY", "duration": 0}]})
    found = scraped(served)
    memory = {
        line.split(":")[0]: int(line.split()[1]) // 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
    }
    assert found["mtotal"] == memory["MemTotal"]
    assert 0 < found["mfree"] < found["mtotal"]
    assert 0 < found["dfree"] <= found["dtotal"]
    assert found["ctotal"] == os.cpu_count()
    assert (found["pinst_cnt"], found["sinst_cnt"]) == (4, 0)


def test_gnt_monitoring_computes_the_memory_of_each_host(served: Served) -> None:
    assert served.request("GET", "/", user="reader").status == 200
    (host,) = [one["id"] for one in served.get("/2/nodes", user="reader")]
    node = served.get(f"/2/nodes/{host}", user="reader")
    used = node["mnode"] / node["mtotal"] * 100
    instances = [served.get(f"/2/instances/{one}", user="reader") for one in node["pinst_list"]]
    allocated = sum(one["beparams"]["maxmem"] for one in instances)
    assert 0 < used < 100
    assert allocated == 4 * 128


def test_a_node_without_a_daemon_is_one_that_does_not_answer(with_other: Served) -> None:
    fields = "name,mfree,dtotal,bootid"
    own, other = sorted(
        with_other.get(f"/2/query/node?fields={fields}")["data"], key=lambda row: row[0][1] == OTHER
    )
    assert [status for status, _ in own] == [0, 0, 0, 0]
    assert other == [[0, OTHER], [2, None], [2, None], [2, None]]
    shown = with_other.get(f"/2/nodes/{OTHER}")
    assert (shown["mfree"], shown["dtotal"], shown["offline"]) == (None, None, False)


# ---------------------------------------------------------------- htools


@pytest.fixture(scope="module")
def htools_run() -> None:
    if problem := htools.problem():
        pytest.skip(problem)


LOADED = [
    ("hinfo", "Loaded 1 node, 4 instances, 3 node groups\n"),
    ("hbal", "Loaded 1 nodes, 4 instances\n"),
    ("hspace", "HTS_ALLOC_INSTANCES="),
]


def arguments(name: str, where: str) -> list[str]:
    """How the exporter calls the tool."""
    more = {
        "hspace": ["--disk-template=diskless", "--standard-alloc=1024,128,1"],
        "hbal": ["-G", "default"],
    }
    machine = ["--machine-readable=yes"] if name == "hspace" else []
    return [where, *more.get(name, []), *machine]


@pytest.mark.usefixtures("htools_run")
@pytest.mark.parametrize(("name", "expected"), LOADED)
def test_htools_read_the_cluster_over_luxi(served: Served, name: str, expected: str) -> None:
    done = htools.run(name, *arguments(name, f"-L{served.places.luxi_socket}"))
    assert (done.code, expected in done.stdout) == (0, True), done


@pytest.mark.usefixtures("htools_run")
@pytest.mark.parametrize(("name", "expected"), LOADED)
def test_htools_read_the_cluster_over_rapi(served: Served, name: str, expected: str) -> None:
    url = f"http://reader:{password('reader')}@127.0.0.1:{served.port}"
    done = htools.run(name, *arguments(name, f"-m{url}"))
    assert (done.code, expected in done.stdout) == (0, True), done


@pytest.mark.usefixtures("htools_run")
def test_hscan_writes_down_the_figures_of_this_machine(served: Served, tmp_path: Path) -> None:
    done = htools.run("hscan", f"-L{served.places.luxi_socket}", folder=tmp_path)
    assert (done.code, "LOCAL     1     4 " in done.stdout) == (0, True), done
    node = (tmp_path / "LOCAL.data").read_text().split("\n\n")[1].split("|")
    shown = served.get(f"/2/nodes/{HOST}")
    assert (node[0], int(node[1]), int(node[4])) == (HOST, shown["mtotal"], shown["dtotal"])
