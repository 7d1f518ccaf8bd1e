"""Hold the jobs whose parameters name a node, wait until it is idle, work on it, let them go.

A maintenance tool with Ganeti's own client of the remote API (Debian: python3-ganeti-rapi). It
works the same against Ganeti and against Ganger:

    hold_node.py --host 127.0.0.1 --ca /var/lib/ganger/rapi.pem --user admin NODE -- COMMAND

The password comes from the environment variable RAPI_PASSWORD.

A rule sees the parameters of an opcode, not its locks. So the tool holds a command (OP_EXEC) that
has the node's name as an argument, but not one that only locks it; --all-commands holds every
command. It holds no job that reaches the node through an instance, a node group, a UUID or all
nodes. It waits for running commands by their locks as well.
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
    code: int = _hold(rapi, options.node, predicates, options.command)
    return code


@client.UsesRapiClient
def _hold(
    rapi: client.GanetiRapiClient, node: str, predicates: list[list[object]], command: list[str]
) -> int:
    # A rule for each parameter: to Ganeti, a rule that looks at a parameter which an opcode does
    # not have never applies to it.
    reason = ("hold_node", f"work on {node}", time.time_ns())
    rules = []
    try:
        for predicate in predicates:
            rule = rapi.AddFilter(0, [["opcode", predicate]], "PAUSE", [reason])
            rules.append(rule)
        print(f"no job that names {node} begins now")
        while running := _running(rapi, node):
            print(f"waiting for jobs {', '.join(map(str, running))}")
            time.sleep(2)
        return subprocess.call(command)
    finally:
        for rule in rules:
            rapi.DeleteFilter(rule)
        print(f"jobs may start on {node} again")


def _running(rapi: client.GanetiRapiClient, node: str) -> list[int]:
    found = rapi.Query("job", ["id", "ops"], ["==", "status", "running"])
    return [
        job_id for (_, job_id), (_, ops) in found["data"] if any(_touches(node, op) for op in ops)
    ]


def _touches(node: str, op: dict[str, Any]) -> bool:
    # In Ganger a command declares its locks; * is every node.
    locks = (op.get("locks") or {}).get("node") or {}
    locked = {name for names in locks.values() for name in names}
    return (
        node in [op.get(name) for name in NAMES]
        or any(node in (op.get(name) or ()) for name in LISTS)
        or (op.get("kind"), op.get("name")) == ("node", node)
        or not locked.isdisjoint({node, "*"})
    )


if __name__ == "__main__":
    sys.exit(main())
