"""Hold all jobs that would touch a node, wait until it is idle, work on it, let them go.

A maintenance tool with Ganeti's own client of the remote API (Debian: python3-ganeti-rapi). It
works the same against Ganeti and against Ganger:

    hold_node.py --host 127.0.0.1 --ca /var/lib/ganger/rapi.pem --user admin NODE -- COMMAND

The password comes from the environment variable RAPI_PASSWORD.
"""

# mypy: allow-untyped-decorators
import argparse
import os
import subprocess
import sys
import time

from ganeti.rapi import client  # type: ignore[import-not-found]


def main() -> int:
    """Run the command while no job starts on the node; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5080)
    parser.add_argument("--ca", required=True, help="the server's certificate")
    parser.add_argument("--user", default="admin")
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
    code: int = _hold(rapi, options.node, options.command)
    return code


@client.UsesRapiClient
def _hold(rapi: client.GanetiRapiClient, node: str, command: list[str]) -> int:
    # A rule for each parameter that may name the node: to Ganeti, a rule that looks at a parameter
    # which an opcode does not have never applies to it.
    touches = (["=[]", "on_nodes", node], ["=[]", "nodes", node], ["=", "node_name", node])
    reason = ("hold_node", f"work on {node}", time.time_ns())
    rules = []
    try:
        for predicate in touches:
            rule = rapi.AddFilter(0, [["opcode", predicate]], "PAUSE", [reason])
            rules.append(rule)
        print(f"no job begins on {node} now")
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
        job_id
        for (_, job_id), (_, ops) in found["data"]
        if any(node in (*op.get("on_nodes", ()), op.get("node_name")) for op in ops)
    ]


if __name__ == "__main__":
    sys.exit(main())
