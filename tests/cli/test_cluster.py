"""``ganger cluster info`` of configurations that lack something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli import stand_in

from ganger.cli.main import ganger
from ganger.storage import errors


class Objects:
    """Answers as a daemon whose configuration has these objects."""

    def __init__(self, **found: list[dict[str, Any]]) -> None:
        self._found = found

    def objects(self, kind: str, *names: str) -> list[dict[str, Any]]:
        found = self._found.get(kind, [])
        if names and not found:
            raise errors.UnknownObjectError(f"{kind}/{names[0]}: there is no such object")
        return found


@pytest.mark.parametrize(
    ("found", "master"),
    [
        (Objects(), "-"),
        (Objects(cluster=[{"master_node": "u"}]), "u"),
        (Objects(cluster=[{"master_node": "u"}], nodes=[{}]), "u"),
        (Objects(cluster=[{"master_node": "u"}], nodes=[{"name": "n"}]), "n"),
    ],
    ids=["no cluster", "no master", "a master without a name", "a master"],
)
def test_what_is_not_there_is_shown_as_missing(tmp_path: Path, found: Objects, master: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stand_in.use(patch, found)
        result = CliRunner().invoke(ganger, ["--data", str(tmp_path), "cluster", "info"])
    assert result.exit_code == 0
    assert f"Master node  {master}" in result.stdout.splitlines()
