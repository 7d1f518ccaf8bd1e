"""A new field of listings is one line in one file: all doors show it.

The test copies the package, adds the line to the copy of the table, and runs a daemon of the copy.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from tests import warm_starts
from tests.checkout import ROOT
from tests.rapi.served import Served

from ganger.storage.jobs import listing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDERS = ("actors", "cli", "rapi", "storage", "transport")
TABLE = "storage/jobs/listing.py"
END = "    # fmt: on\n"
LINE = """\
    label: Annotated[str, Listed(
        "Label", "The comment of the first opcode",
        of_inputs=lambda inputs: inputs[0].get("comment") or "" if inputs else "")] = ""
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("label")
    package = folder / "place" / "ganger"
    for name in FOLDERS:
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, package / name, ignore=left_out)
    shutil.copy(ROOT / "__init__.py", package)
    add_field(package / TABLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(package.parent))
        # A process that waits for work has the code without the field.
        patch.setattr(warm_starts, "can_begin", lambda *_: False)
        with Served(folder) as daemon:
            op = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "comment": "weekly"}
            daemon.run("job", "submit", "--wait", "--op", json.dumps(op))
            plain = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001}
            daemon.run("job", "submit", "--wait", "--op", json.dumps(plain))
            yield daemon


def add_field(table: Path) -> None:
    """Add the line at the end of the table."""
    text = table.read_text()
    assert text.count(END) == 1
    table.write_text(text.replace(END, LINE + END))


def test_the_field_is_new() -> None:
    assert "label" not in listing.LISTED


def test_the_command_line_shows_it(served: Served) -> None:
    found = served.run("job", "list", "--fields", "id,label", "--no-headers").stdout
    assert [line.split() for line in found.splitlines()] == [["1", "weekly"], ["2", "-"]]
    as_json = json.loads(served.run("job", "list", "-o", "json").stdout)
    assert [job["label"] for job in as_json] == ["weekly", ""]
    assert "  Label: weekly\n" in served.run("job", "info", "1").stdout


def test_queries_know_it_and_filter_by_it(served: Served) -> None:
    found = served.run("query", "job", "--fields", "id,label", "--filter", 'label == "weekly"')
    assert found.stdout.splitlines()[1].split() == ["1", "weekly"]
    assert "The comment of the first opcode" in served.run("query-fields", "job").stdout


def test_the_remote_api_shows_it(served: Served) -> None:
    assert [job["label"] for job in served.get("/2/jobs?bulk=1")] == ["weekly", ""]
    assert served.get("/2/jobs/1")["label"] == "weekly"


def test_the_page_gets_its_column_and_its_values(served: Served) -> None:
    found = served.get("/2/queue")
    assert {"name": "label", "title": "Label", "kind": "text"} in found["columns"]
    assert {job["id"]: job["label"] for job in found["jobs"]} == {1: "weekly", 2: ""}


def test_a_client_without_the_field_lists_jobs(served: Served) -> None:
    with served.client() as client:
        assert [job.id for job in client.jobs()] == [1, 2]
