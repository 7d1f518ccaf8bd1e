from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "ganger-example-opcodes"

# Runs in an interpreter of its own, so that nothing of the example is left in this one.
SCRIPT = """
import json, sys
from ganger.actors.operations.local_context import LocalContext
from ganger.storage import errors, opcodes
from ganger.storage.opcodes import catalogue
from ganger.storage.opcodes import OperationError

found = catalogue.load_user_opcodes()
context = LocalContext(dry_run="dry" in sys.argv)
answer = {"loaded": found.loaded, "problems": found.problems}
fields = json.loads(sys.argv[1])
try:
    answer["stored"] = opcodes.check_opcode(fields)
    answer["summary"] = opcodes.summary(fields)
    answer["locks"] = opcodes.parse(fields).lock_needs().to_changes()
    answer["result"] = context.run(fields)
except (errors.GangerError, OperationError) as error:
    answer["error"] = [type(error).__name__, str(error)]
answer["messages"] = context.lines()
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which the example is installed."""
    work = tmp_path_factory.mktemp("example")
    # Building writes into the source, which must stay as it is.
    source = shutil.copytree(EXAMPLE, work / "source")
    target = work / "target"
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-index", "--no-deps", "--no-build-isolation"),
        *("--target", os.fspath(target), os.fspath(source)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def submit(installed: Path | None, fields: dict[str, Any], *arguments: str) -> dict[str, Any]:
    environment = dict(os.environ)
    if installed is not None:
        environment["PYTHONPATH"] = os.fspath(installed)
    command = [sys.executable, "-c", SCRIPT, json.dumps(fields), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
def test_an_installed_users_opcode_is_found_checked_and_run(
    installed: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content" * 500_000)
    fields = {"OP_ID": "OP_FILE_CHECKSUM", "path": os.fspath(file), "node": "n1"}
    answer = submit(installed, fields)
    assert answer["loaded"] == ["OP_FILE_CHECKSUM"]
    assert answer["problems"] == []
    assert answer["stored"] == {
        **fields,
        "priority": 0,
        "depends": None,
        "comment": None,
        "reason": [],
        "algorithm": "sha256",
    }
    assert answer["summary"] == f"FILE_CHECKSUM({file})"
    assert answer["locks"] == [["cluster/BGL", "shared"], ["node/n1", "shared"]]
    assert answer["result"] == {
        "algorithm": "sha256",
        "checksum": hashlib.sha256(file.read_bytes()).hexdigest(),
        "bytes": 3_500_000,
    }
    assert answer["messages"] == [f"Read 3500000 bytes of {file}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "missing parameter 'path'"),
        ({"path": "relative"}, "path: expected an absolute path"),
        (
            {"path": "/x", "algorithm": "crc32"},
            "algorithm: expected one of blake2b, sha256, sha512, got 'crc32'",
        ),
    ],
)
def test_parameters_of_a_users_opcode_are_checked_at_submission(
    installed: Path, parameters: dict[str, Any], words: str
) -> None:
    answer = submit(installed, {"OP_ID": "OP_FILE_CHECKSUM", **parameters})
    assert answer["error"] == ["OpcodeError", f"OP_FILE_CHECKSUM: {words}"]


def test_a_users_operation_fails_with_its_own_words(installed: Path) -> None:
    answer = submit(installed, {"OP_ID": "OP_FILE_CHECKSUM", "path": "/no/such/file"})
    assert answer["error"] == ["OperationError", "/no/such/file: No such file or directory"]


def test_a_dry_run_of_the_example_computes_nothing(installed: Path) -> None:
    fields = {"OP_ID": "OP_FILE_CHECKSUM", "path": os.fspath(Path(__file__))}
    answer = submit(installed, fields, "dry")
    assert (answer["result"], answer["messages"]) == (None, [])


def test_a_users_opcode_is_unknown_where_it_is_not_installed() -> None:
    answer = submit(None, {"OP_ID": "OP_FILE_CHECKSUM", "path": "/x"})
    assert answer["loaded"] == []
    assert answer["error"][0] == "OpcodeError"
    assert "unknown opcode 'OP_FILE_CHECKSUM'" in answer["error"][1]
