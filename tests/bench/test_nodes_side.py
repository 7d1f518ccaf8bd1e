"""The part of the benchmark that measures commands on nodes runs, at a small size."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bench import nodes_side

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_every_figure_of_nodes_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nodes_side, "NODES", (1, 2))
    monkeypatch.setattr(nodes_side, "OUTPUT_BYTES", 3_000_000)
    monkeypatch.setattr(nodes_side, "REST_SECONDS", 0.1)
    nodes_side.measure(tmp_path, steps=10, jobs=4)
    printed = capsys.readouterr().out
    assert len(re.findall(r"^  ratio.* [0-9.]+$", printed, re.MULTILINE)) == 4
    assert re.search(r"over 2 nodes +\d+ jobs per s", printed)
    assert re.search(r"a node, daemon +[0-9.]+ MiB", printed)
    assert re.search(r"the master with 2 nodes, node_keeper +[0-9.]+ MiB", printed)
    assert re.search(r"a node at rest, wake-ups per second +[0-9.]+", printed)
