"""``ganger opcodes``: every opcode is listed, and its parameters are told in words."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from click.testing import CliRunner

from ganger.cli import opcodes
from ganger.cli.main import ganger
from ganger.storage import errors
from ganger.storage.opcodes import catalogue


def shown(*words: str) -> str:
    done = CliRunner().invoke(ganger, ["opcodes", *words], standalone_mode=False)
    assert done.exception is None
    return done.stdout


def test_all_opcodes_are_listed_and_those_that_run_are_told() -> None:
    lines = [line.split(maxsplit=2) for line in shown("--no-headers").splitlines()]
    assert [line[0] for line in lines] == catalogue.known_ids()
    assert ["OP_EXEC", "yes", "argv"] in lines


@pytest.mark.parametrize("name", ["OP_EXEC", "exec", "Exec"])
def test_the_parameters_of_one_are_told_in_words(name: str) -> None:
    text = shown(name)
    assert text.startswith("OP_EXEC: Run a command, without a shell, under declared locks.\n")
    lines = [line.split("\t") for line in shown(name, "--separator", "\t").splitlines()]
    assert ["argv", "(required)", "list of text"] in lines
    assert ["ok_exit_codes", "[0]", "list of whole number"] in lines
    assert ["timeout", "-", "number, or null"] in lines


@pytest.mark.parametrize("op_id", catalogue.known_ids())
def test_a_terminal_shows_whole_types_within_its_width(
    op_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout", mock.Mock(isatty=lambda: True))
    lines: list[str] = []
    monkeypatch.setattr("ganger.cli.output.echo", lines.append)
    assert opcodes.opcodes.callback is not None
    opcodes.opcodes.callback(
        name=op_id, output_kind="table", no_headers=False, separator=None, fields=None
    )
    assert max(map(len, lines[2:])) <= 80
    text = " ".join(" ".join(lines).split())
    declared = catalogue.find(op_id)
    assert declared is not None
    for one in opcodes._parameters(declared):
        assert all(word in text for word in one.type.split())


def test_json_has_the_defaults_as_values() -> None:
    [found] = [one for one in json.loads(shown("EXEC", "-o", "json")) if one["name"] == "env"]
    assert found == {
        "name": "env",
        "type": "mapping of text to text",
        "default": {},
        "required": False,
    }


@pytest.mark.parametrize("op_id", catalogue.known_ids())
def test_every_opcode_can_be_shown(op_id: str) -> None:
    assert shown(op_id).startswith(f"{op_id}: ")


def test_a_misspelt_name_gets_a_guess() -> None:
    done = CliRunner().invoke(ganger, ["opcodes", "OP_EXEX"], standalone_mode=False)
    assert isinstance(done.exception, errors.UsageError)
    assert done.exception.text == (
        "unknown opcode 'OP_EXEX' (did you mean OP_EXEC?); `ganger opcodes` lists them"
    )
