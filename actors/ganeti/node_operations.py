"""Ganeti's opcodes whose processes ask hosts, or submit jobs: verify, copy files, run commands.

The decisions are in `storage.ganeti.operations`. A host that does not answer holds up none of
them: it is asked whether it is there before anything begins on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...storage import errors
from ...storage.ganeti.operations import group_checks
from ...storage.ganeti.operations.base import warning
from ...storage.nodes.named_calls import RestrictedCommand, WriteSsconfFiles
from ...storage.opcodes import OperationError
from ...storage.opcodes.node_opcodes import OpNodeCall
from ...storage.version import version
from ...transport import messages
from ...transport.messages.base import PROTOCOL
from ..operations import on_node
from ..processes import host_figures
from . import query_operations

if TYPE_CHECKING:
    from ...storage.nodes.named_calls import NodeCall
    from ...storage.opcodes import Opcode
    from ..job.conversation import Conversation
    from ..job.job_context import JobContext
    from ..job.store_operations import Await

_NORMAL_SECONDS: Final = 15 * 60.0
_SLOW_SECONDS: Final = 60 * 60.0
"""As long as Ganeti waits for the reply to a call of a node, and to a slow one."""

_OFFLINE: Final = "Node is marked offline"
_NODE_FIELDS: Final = ["name", "uuid", "offline", "drained", "master_candidate", "master"]
_INSTANCE_FIELDS: Final = ["name", "admin_state", "pnode", "pnode.group.uuid"]


def run(opcode: Opcode, context: JobContext, daemon: Conversation, wait: Await) -> object:
    """Carry the opcode out: its result. Raises `OperationError`."""
    return _OPERATIONS[opcode.op_id](opcode, _Asking(context, daemon, wait))


class _Asking:
    """What the opcodes ask of the daemon, and of hosts through it."""

    def __init__(self, context: JobContext, daemon: Conversation, wait: Await) -> None:
        self.context = context
        self._daemon = daemon
        self._await = wait

    def rows(
        self, what: str, fields: list[str], wanted: list[Any] | None = None
    ) -> list[dict[str, Any]]:
        """What a query for objects answers, each row by the names of its fields."""
        asked = messages.RunQuery(self.context.job_id, what, fields, wanted)
        found = query_operations.answer(asked, self.context, self._daemon, self._await)
        return [
            dict(zip(fields, [value for _, value in row], strict=True)) for row in found["data"]
        ]

    def submit(self, specs: list[messages.JobSpec]) -> list[int]:
        """Submit jobs, once for this opcode, whatever is repeated: their ids."""
        request = messages.SubmitFromJob(
            job_id=self.context.job_id, jobs=specs, key=f"jobs of {self.context.own_key}"
        )
        answer = self._await(self._daemon.send(request), is_cancelable=False)
        assert isinstance(answer, messages.JobsSubmitted)
        return answer.ids

    def call_hosts(
        self, nodes: Sequence[str], call: NodeCall[Any], lost_after: float
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Make a call of the hosts of these nodes: the replies, and why there are no others.

        A host that is silent for ``lost_after`` seconds after it was called is given up.
        """
        there = self.context.ask_hosts(nodes)
        absent = {name: self.absence(name) for name in nodes if name not in there}
        opcode = OpNodeCall(call=call.call, arguments=msgspec.to_builtins(call))
        fields = on_node.fields_of(opcode)
        results, failures = on_node.try_all(
            self.context, [name for name in nodes if name in there], fields, lost_after=lost_after
        )
        return results, absent | {name: _text(error) for name, error in failures.items()}

    def absence(self, node: str) -> str:
        """Why the host of this node has not answered."""
        if node not in self.context.joined_nodes():
            return "no host has joined as this node"
        return "its host is silent, or does not answer in time"


def _text(error: OperationError | errors.GangerError) -> str:
    if isinstance(error, OperationError):
        return str(error.details[0]) if error.details else error.name
    return error.text


# ---------------------------------------------------------------- verify


def _verify(opcode: Any, asking: _Asking) -> dict[str, Any]:  # noqa: ANN401 - a type that is made
    """Submit a job that verifies the configuration, and one for each group, which follow it."""
    common = {
        "debug_simulate_errors": opcode.debug_simulate_errors,
        "verbose": opcode.verbose,
        "error_codes": opcode.error_codes,
        "ignore_errors": opcode.ignore_errors,
        "priority": opcode.priority,
        "comment": f"Submitted by {opcode.op_id}",
        "reason": opcode.reason,
    }
    of_group = {"skip_checks": opcode.skip_checks, "verify_clutter": opcode.verify_clutter}
    jobs = []
    if opcode.group_name is None:
        groups = [row["uuid"] for row in asking.rows("group", ["uuid"])]
        jobs.append(messages.JobSpec(ops=[{"OP_ID": "OP_CLUSTER_VERIFY_CONFIG", **common}]))
    else:
        groups = [opcode.group_name]
    for group in groups:
        fields = {"OP_ID": "OP_CLUSTER_VERIFY_GROUP", "group_name": group, **of_group, **common}
        if opcode.group_name is None:
            fields["depends"] = [[-len(jobs), []]]
        jobs.append(messages.JobSpec(ops=[fields]))
    if opcode.dry_run:
        return {"jobs": []}
    return {"jobs": [[True, job_id] for job_id in asking.submit(jobs)]}


def _verify_group(opcode: Any, asking: _Asking) -> bool:  # noqa: ANN401 - as above
    """Compare what the hosts of a group say of themselves with what they should."""
    [row] = asking.rows("group", ["name", "uuid"], ["==", "name", opcode.group_name])
    of_group = ["==", "group.uuid", row["uuid"]]
    nodes = asking.rows("node", _NODE_FIELDS, of_group)
    instances = asking.rows("instance", _INSTANCE_FIELDS, ["==", "pnode.group.uuid", row["uuid"]])
    group = group_checks.Group(row["name"], nodes, instances)
    own, begin = host_figures.name(), time.time()
    online = [node["name"] for node in nodes if not node["offline"]]
    others = [name for name in online if not _is_same(name, own)]
    found = asking.context.ask_hosts(others) if others else {}
    end = time.time()
    files = host_figures.digests(Path(asking.context.data_directory) / "ssconf")
    master = group_checks.Master(version(), PROTOCOL, begin, end, files)
    said: dict[str, group_checks.Said | str] = {
        name: group_checks.Said(version(), PROTOCOL, end, {}) for name in online
    }
    for name in others:
        host = found.get(name)
        if host is None:
            said[name] = asking.absence(name)
        else:
            said[name] = group_checks.Said(host.version, host.protocol, host.time, host.files)
    report = group_checks.verify(opcode, group, master, said)
    asking.context.log_lines(report.lines)
    return not report.is_bad


def _is_same(node: str, machine: str) -> bool:
    """Whether the node is this machine."""
    return node == machine or node.startswith(f"{machine}.")


# ---------------------------------------------------------------- files


def _redistribute(_opcode: Any, asking: _Asking) -> None:  # noqa: ANN401 - as above
    """Copy the ssconf files, which the store has written just now, to the hosts that are online."""
    folder = Path(asking.context.data_directory) / "ssconf"
    values = {
        path.name.removeprefix("ssconf_"): path.read_text() for path in folder.glob("ssconf_*")
    }
    nodes = asking.rows("node", ["name", "offline", "master"])
    own = host_figures.name()
    targets = [
        node["name"]
        for node in nodes
        if not (node["offline"] or node["master"] or _is_same(node["name"], own))
    ]
    if not targets or asking.context.dry_run:
        return
    _, failures = asking.call_hosts(targets, WriteSsconfFiles(values=values), _NORMAL_SECONDS)
    asking.context.log_lines(
        [
            warning(f"Copy of the ssconf files to node {name} failed: {text}")
            for name, text in failures.items()
        ]
    )


# ---------------------------------------------------------------- restricted commands


def _restricted(opcode: Any, asking: _Asking) -> list[list[Any]]:  # noqa: ANN401 - as above
    """Run a command on each node: whether it has succeeded, and its output or why not."""
    wanted = opcode.nodes or opcode.node_uuids or []
    tree = ["|", *(["==", "name", one] for one in wanted)]
    nodes = asking.rows("node", ["name", "offline"], tree) if wanted else []
    failures = {node["name"]: _OFFLINE for node in nodes if node["offline"]}
    online = [node["name"] for node in nodes if not node["offline"]]
    results: dict[str, Any] = {}
    if online and not asking.context.dry_run:
        call = RestrictedCommand(cmd=opcode.command)
        results, others = asking.call_hosts(online, call, _SLOW_SECONDS)
        failures |= others
    head = f"Command '{opcode.command}' on node"
    return [
        [True, results[name]]
        if name in results
        else [False, f"{head} '{name}' failed: {failures.get(name, 'dry run')}"]
        for name in (node["name"] for node in nodes)
    ]


_OPERATIONS: Final[Mapping[str, Callable[[Any, _Asking], object]]] = {
    "OP_CLUSTER_REDIST_CONF": _redistribute,
    "OP_CLUSTER_VERIFY": _verify,
    "OP_CLUSTER_VERIFY_GROUP": _verify_group,
    "OP_RESTRICTED_COMMAND": _restricted,
}
