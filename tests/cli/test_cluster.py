"""``ganger cluster info`` of configurations that lack something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli import stand_in

from ganger.cli.main import ganger
from ganger.storage import errors
from ganger.storage.cluster.objects import CONTAINERS
from ganger.transport.messages import ObjectsCounted


class Objects:
    """Answers as a daemon whose configuration has these objects."""

    def __init__(self, **found: list[dict[str, Any]]) -> None:
        self._found = found

    def count_objects(self) -> ObjectsCounted:
        return ObjectsCounted(17, dict.fromkeys(CONTAINERS, 5_000_000))

    def objects(self, kind: str, *names: str) -> list[dict[str, Any]]:
        assert kind == "cluster" or names, "all objects of a kind are read"
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
    assert f"Master node    {master}" in result.stdout.splitlines()


def test_parameters_that_are_not_in_force_are_named(tmp_path: Path) -> None:
    cluster = {"predictive_queue": {"ticks": -1, "tick_seconds": 10}}
    with pytest.MonkeyPatch.context() as patch:
        stand_in.use(patch, Objects(cluster=[cluster]))
        result = CliRunner().invoke(ganger, ["--data", str(tmp_path), "cluster", "info"])
    assert "0 after 30 ticks of 10 s" in result.stdout
    line = "Not in force   cluster.predictive_queue.ticks: expected float > 0.0"
    assert line in result.stdout.splitlines()


def test_objects_are_counted_without_reading_them(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stand_in.use(patch, Objects())
        result = CliRunner().invoke(ganger, ["--data", str(tmp_path), "cluster", "info"])
    assert result.exit_code == 0, result.output
    assert "Instances      5000000" in result.stdout.splitlines()


def test_the_serial_number_is_that_of_the_history(tmp_path: Path) -> None:
    found = Objects(cluster=[{"serial_no": 5, "mtime": 0.0}])
    with pytest.MonkeyPatch.context() as patch:
        stand_in.use(patch, found)
        command = ["--data", str(tmp_path), "cluster", "info"]
        result = CliRunner().invoke(ganger, command)
        as_json = CliRunner().invoke(ganger, [*command, "--output", "json"])
    lines = result.stdout.splitlines()
    assert "Serial number  17 (of the configuration, as `ganger config history` has it)" in lines
    assert "Changed        1970-01-01T00:00:00Z (these settings, to their serial number 5)" in lines
    shown = json.loads(as_json.stdout)
    assert (shown["serial_no"], shown["cluster"]["serial_no"]) == (17, 5)


def test_the_policy_of_the_scheduler_is_shown_with_its_defaults(tmp_path: Path) -> None:
    found = Objects(cluster=[{"predictive_queue": {"all_opcodes": False, "ticks": 10}}])
    with pytest.MonkeyPatch.context() as patch:
        stand_in.use(patch, found)
        command = ["--data", str(tmp_path), "cluster", "info"]
        lines = CliRunner().invoke(ganger, command).stdout.splitlines()
        as_json = json.loads(CliRunner().invoke(ganger, [*command, "--output", "json"]).stdout)
        stand_in.use(patch, Objects(cluster=[{"enabled_predictive_queue": False}]))
        off = CliRunner().invoke(ganger, command).stdout.splitlines()
    shown = "Prediction     on: holds jobs back that would block, reads a job's first opcode"
    assert shown in lines
    assert "Weights        base 1, costs 0 0.3 0.5 1.5 3; 0 after 10 ticks of 30 s" in lines
    assert as_json["prediction"]["ticks"] == 10
    assert as_json["prediction"]["costs"]["blocks"] == 3
    assert "Prediction     off" in off


@pytest.mark.parametrize(
    ("options", "values"),
    [
        (["--no-predictive-queue"], {"enabled_predictive_queue": False}),
        (
            ["--predictive-queue", "--hold-back", "--all-opcodes"],
            {
                "enabled_predictive_queue": True,
                "predictive_queue/holds_back": True,
                "predictive_queue/all_opcodes": True,
            },
        ),
        (["--set", "predictive_queue/costs/blocks=4"], {"predictive_queue/costs/blocks": 4}),
    ],
)
def test_the_policy_is_changed_by_options(
    tmp_path: Path, options: list[str], values: dict[str, Any]
) -> None:
    changed = []

    class Changed:
        def set_values(
            self, kind: str, name: str, values: dict[str, Any], *, why: str, key: str
        ) -> None:
            assert key
            changed.append((kind, name, values, why))

    with pytest.MonkeyPatch.context() as patch:
        stand_in.use(patch, Changed())
        result = CliRunner().invoke(
            ganger, ["--data", str(tmp_path), "cluster", "modify", *options]
        )
    assert result.exit_code == 0, result.output
    assert changed == [("cluster", "", values, "")]
