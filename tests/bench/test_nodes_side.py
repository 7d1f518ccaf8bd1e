"""The part of the benchmark that measures commands on nodes runs, at a small size."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bench import nodes_side, silent_nodes, ssh_side

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_every_figure_of_nodes_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nodes_side, "NODES", (1, 2))
    monkeypatch.setattr(nodes_side, "OUTPUT_BYTES", 3_000_000)
    monkeypatch.setattr(nodes_side, "REST_SECONDS", 0.1)
    monkeypatch.setattr(silent_nodes, "REST_SECONDS", 0.1)
    monkeypatch.setattr(silent_nodes, "COUNT", 3)
    nodes_side.measure(tmp_path, steps=10, jobs=4)
    printed = capsys.readouterr().out
    assert len(re.findall(r"^  ratio.* [0-9.]+$", printed, re.MULTILINE)) == 5
    assert re.search(r"over 2 nodes +\d+ jobs per s", printed)
    assert re.search(r"a node, daemon +[0-9.]+ MiB", printed)
    assert re.search(r"the master with 2 nodes, node_keeper +[0-9.]+ MiB", printed)
    assert re.search(r"a node at rest, wake-ups per second +[0-9.]+", printed)
    assert re.search(r"through a pipe +\d+ MB per s", printed)
    assert re.search(r"one command on each of 2 nodes +p50", printed)
    assert re.search(r"a node, daemon, shared pages counted in part +[0-9.]+ MiB", printed)
    assert re.search(r"3 nodes have called after +[0-9.]+ s", printed)
    # A host without a node object is sent away right after its call.
    assert re.search(r"nodes that are still there at the end +3", printed)
    assert re.search(r"the hub, memory +[0-9.]+ MiB \(without nodes [0-9.]+\)", printed)
    assert re.search(r"the daemon, at rest +[0-9.]+ % of a processor", printed)
    if (reason := ssh_side.missing()) is not None:
        assert re.search(
            rf"over ssh with a kept connection +not measured: {re.escape(reason)}", printed
        )
    else:
        assert re.search(r"over ssh with a kept connection, start to end +p50", printed)
        assert re.search(r"over ssh, 8 at a time +\d+ commands per s", printed)
        assert re.search(r"output over ssh +p50", printed)
    assert re.search(r"(Ansible's ad-hoc command|over ssh with a kept connection)", printed)
