"""Hold the jobs that touch a node, wait until it is idle, work on it, let them go.

A maintenance tool with Ganeti's own client of the remote API (Debian: python3-ganeti-rapi). It
works against Ganeti and against Ganger (where `ganger hold node/NODE -- COMMAND` does the same):

    hold_node.py --host 127.0.0.1 --ca /var/lib/ganger/rapi.pem --user admin NODE -- COMMAND

The password comes from the environment variable RAPI_PASSWORD.

Ganger has rules on locks: one holds each job that takes a lock of the node, shared or exclusively,
by its name or UUID, through an instance or with all nodes, and each job of which that is not known.
To Ganeti, a rule sees the parameters of an opcode alone: there the tool holds the jobs that name
the node, and none that reaches it through an instance, a node group, a UUID or all nodes.

A command (OP_EXEC, Ganger's own) declares its locks. One that declares none is held if it has the
node's name as an argument; --all-commands holds every command.
"""

# mypy: allow-untyped-decorators
import argparse
import os
import subprocess
import sys
import time
from typing import Any

from ganeti.rapi import client  # type: ignore[import-not-found]

NAMES = ("node_name", "pnode", "remote_node", "snode", "src_node", "target_node")
"""The parameters that name one node."""

LISTS = ("argv", "node_names", "nodes", "on_nodes")
"""The parameters that list nodes; the arguments of a command may."""


def main() -> int:
    """Run the command while no job starts on the node; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5080)
    parser.add_argument("--ca", required=True, help="the server's certificate")
    parser.add_argument("--user", default="admin")
    parser.add_argument("--all-commands", action="store_true", help="hold every command, too")
    parser.add_argument("node")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    rapi = client.GanetiRapiClient(
        options.host,
        port=options.port,
        username=options.user,
        password=os.environ["RAPI_PASSWORD"],
        curl_config_fn=client.GenericCurlConfig(cafile=options.ca),
    )
    predicates: list[list[object]] = [
        *(["=", name, options.node] for name in NAMES),
        *(["=[]", name, options.node] for name in LISTS),
        # What changes the tags of a node has its name in two parameters.
        ["&", ["=", "kind", "node"], ["=", "name", options.node]],
    ]
    if options.all_commands:
        predicates.append(["=", "OP_ID", "OP_EXEC"])
    names = _names(rapi, options.node)
    code: int = _hold(rapi, names, predicates, options.command)
    return code


def _names(rapi: client.GanetiRapiClient, node: str) -> list[str]:
    """The node's name, as it was written, and its UUID, if the cluster has the node."""
    try:
        return [node, rapi.GetNode(node)["uuid"]]
    except client.GanetiApiError:
        return [node]


@client.UsesRapiClient
def _hold(
    rapi: client.GanetiRapiClient,
    names: list[str],
    predicates: list[list[object]],
    command: list[str],
) -> int:
    node = names[0]
    reason = ("hold_node", f"work on {node}", time.time_ns())
    rules = []
    try:
        touching = ["|", *(["=", "touches", f"node/{name}"] for name in names)]
        try:
            rules.append(rapi.AddFilter(0, [["lock", touching]], "PAUSE", [reason]))
        except client.GanetiApiError as error:
            print(f"no rule on locks ({error}): only jobs that name {node} are held")
        # A rule for each parameter: to Ganeti, a rule that looks at a parameter which an opcode
        # does not have never applies to it.
        rules += (
            rapi.AddFilter(0, [["opcode", predicate]], "PAUSE", [reason])
            for predicate in predicates
        )
        print(f"no job that touches {node} begins now")
        while running := _running(rapi, names):
            print(f"waiting for jobs {', '.join(map(str, running))}")
            time.sleep(2)
        return subprocess.call(command)
    finally:
        for rule in rules:
            rapi.DeleteFilter(rule)
        print(f"jobs may start on {node} again")


def _running(rapi: client.GanetiRapiClient, names: list[str]) -> list[int]:
    found = rapi.Query("job", ["id", "ops"], ["==", "status", "running"])
    return [
        job_id for (_, job_id), (_, ops) in found["data"] if any(_touches(names, op) for op in ops)
    ]


def _touches(names: list[str], op: dict[str, Any]) -> bool:
    # In Ganger a command declares its locks; * is every node, and the big lock alone every lock.
    locks = op.get("locks") or {}
    levels = [locks.get(level) or {} for level in ("node", "node-res")]
    locked = {name for level in levels for mode in level.values() for name in mode}
    return (
        any(op.get(parameter) in names for parameter in NAMES)
        or any(name in (op.get(parameter) or ()) for parameter in LISTS for name in names)
        or (op.get("kind") == "node" and op.get("name") in names)
        or not locked.isdisjoint({*names, "*"})
        or bool((locks.get("cluster") or {}).get("exclusive"))
    )


if __name__ == "__main__":
    sys.exit(main())
