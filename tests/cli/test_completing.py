"""What a shell offers: from a daemon at its socket, soon, and nothing if none answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from tests.transport.client.fake_daemon import FakeDaemon

from ganger import Client
from ganger.cli import completing
from ganger.cli.main import ganger
from ganger.storage.disk import paths
from ganger.storage.opcodes import LockNeeds

OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GANGER_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def daemon(data: Path) -> Iterator[FakeDaemon]:
    started = FakeDaemon(data)
    yield started
    started.kill()


def completed(words: str, incomplete: str = "") -> list[str]:
    completion = ShellComplete(ganger, {}, "ganger", "_GANGER_COMPLETE")
    return [item.value for item in completion.get_completions(words.split(), incomplete)]


@pytest.mark.parametrize(
    "words",
    [
        *("job info", "job list", "job cancel", "job wait", "job watch", "job why", "job eta"),
        *("job archive", "job purge", "job retry", "job logs", "job change-priority"),
        *("exec --after", "exec --on-failure", "job submit --depend"),
        *("filter add --jobs-after", "queue simulate --ended", "queue simulate --priority"),
    ],
)
def test_jobs_are_completed_wherever_one_is_meant(
    words: str, daemon: FakeDaemon, data: Path
) -> None:
    with Client(data) as client:
        client.submit_many([OP, OP])
    assert len(daemon.store.specs) == 2
    assert completed(words) == ["@last", "2", "1"]
    assert completed(words, "2") == ["2"]


def test_names_of_jobs_and_plans_are_completed(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def summary(job_id: int) -> object:
        row = found(job_id)
        return msgspec.structs.replace(row, name=f"backup{job_id}", plan="bake")

    found = daemon.store.summary
    monkeypatch.setattr(daemon.store, "summary", summary)
    with Client(os.environ["GANGER_DATA"]) as client:
        client.submit_many([OP, OP])
    assert completed("job wait", "ba") == ["backup2", "bake", "backup1"]
    assert completed("job wait backup2", "backup") == ["backup1"]
    # An id has no name before it.
    assert completed("job wait", "1") == ["1"]


UUIDS = [f"0000000{number}-0000-4000-8000-000000000000" for number in (1, 2)]


@pytest.mark.parametrize("command", ["replace", "delete", "list", "info"])
def test_rules_are_completed(command: str, daemon: FakeDaemon, data: Path) -> None:
    with Client(data) as client:
        for uuid in UUIDS:
            client.add_filter(uuid=uuid, action="PAUSE")
    assert len(daemon.store.filters) == 2
    assert completed(f"filter {command}", "0000") == UUIDS
    assert completed(f"filter {command}", "f") == []
    if command == "delete":
        assert completed(f"filter delete {UUIDS[0]}") == UUIDS[1:]


@pytest.mark.usefixtures("daemon")
def test_locks_are_completed_level_by_level() -> None:
    assert completed("exec --lock") == ["instance/", "nodegroup/", "node/", "node-res/", "network/"]
    assert completed("exec --lock", "node") == ["nodegroup/", "node/", "node-res/"]
    assert completed("exec --lock", "node/") == ["node/*", "node/n1"]
    assert completed("filter add --lock", "node/n") == ["node/n1"]
    assert completed("hold", "node/n") == ["node/n1"]


@pytest.mark.usefixtures("daemon")
def test_a_hold_is_completed_with_locks_and_jobs(data: Path) -> None:
    with Client(data) as client:
        job = client.submit(OP)
    assert completed("hold", str(job)) == [str(job)]
    assert completed("hold", "@") == ["@last"]
    assert completed("hold", "node") == ["nodegroup/", "node/", "node-res/"]


def test_a_release_is_completed_with_what_is_held(daemon: FakeDaemon, data: Path) -> None:
    with Client(data) as client:
        for number, name in enumerate(("hold node/n7", "hold 4711", "nightly")):
            client.add_filter(uuid=f"0000000{number}-0000-4000-8000-000000000000", name=name)
    assert len(daemon.store.filters) == 3
    assert completed("release") == ["node/n7", "4711"]
    assert completed("release 4711", "n") == ["node/n7"]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("two", r"two\ words"),
        (r"two\ w", r"two\ words"),
        ("'two", "two words"),
        ('"two', "two words"),
        ("back", "backup"),
    ],
)
def test_bash_types_a_name_so_that_it_stays_one_word(
    typed: str,
    offered: str,
    daemon: FakeDaemon,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def summary(job_id: int) -> object:
        return msgspec.structs.replace(found(job_id), name=("two words", "backup")[job_id - 1])

    found = daemon.store.summary
    monkeypatch.setattr(daemon.store, "summary", summary)
    with Client(data) as client:
        client.submit_many([OP, OP])
    script = tmp_path / "completion"
    script.write_text(CliRunner().invoke(ganger, ["completion", "bash"]).output)
    program = tmp_path / "ganger"
    program.write_text(f"#!{sys.executable}\nfrom ganger.cli.entry import main\nmain()\n")
    program.chmod(0o700)
    done = subprocess.run(
        ["bash", "-euc", _COMPLETE, "bash", script, program, typed],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{offered}\n"


_COMPLETE = """
source "$1"
COMP_WORDS=(ganger job info "$3")
COMP_CWORD=3
_ganger_completion "$2"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_opcodes_and_files_are_completed_without_a_daemon() -> None:
    assert completed("opcodes", "op_ex") == completed("filter add --opcode", "OP_EX")
    assert "OP_EXEC" in completed("opcodes", "op_ex")
    [item] = ShellComplete(ganger, {}, "ganger", "X").get_completions(["job", "submit"], "pl")
    assert (item.type, item.value) == ("file", "pl")


def test_outcomes_are_completed() -> None:
    assert completed("job list --outcome", "t") == ["timed-out"]


def test_nothing_is_offered_when_no_daemon_answers(data: Path) -> None:
    assert completed("job info", "1") == []
    assert completed("filter delete") == []
    FakeDaemon(data).kill()
    assert completed("filter delete") == []


def test_a_daemon_that_says_nothing_is_not_waited_for(
    data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(completing, "SECONDS_MAX", 0.01)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        data.mkdir()
        endpoint = msgspec.json.encode({"socket": str(tmp_path / "s")})
        paths.places(data).endpoint_file.write_bytes(endpoint)
        assert completed("filter delete") == []


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"socket": 5}', b"\xff"])
def test_a_damaged_endpoint_file_offers_nothing(data: Path, text: bytes) -> None:
    data.mkdir()
    paths.places(data).endpoint_file.write_bytes(text)
    assert completed("job info", "1") == []


def test_a_completion_needs_no_client_library() -> None:
    """To import it would take longer than all the rest."""
    script = (
        "import sys; from click.shell_completion import ShellComplete;"
        "from ganger.cli.main import ganger;"
        "c = ShellComplete(ganger, {}, 'ganger', 'X');"
        "[c.get_completions(words, '') for words in "
        "(['job', 'info'], ['filter', 'delete'], ['exec', '--lock'])];"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "ganger.transport.zmq.zmtp" in loaded
    slow = {"ganger.transport.client.client", "ganger.transport.messages", "zmq", "rich", "asyncio"}
    assert not slow & set(loaded)


def test_commands_are_named_without_loading_them() -> None:
    script = (
        "import sys; from click.shell_completion import ShellComplete;"
        "from ganger.cli.main import ganger;"
        "found = ShellComplete(ganger, {}, 'ganger', '_X').get_completions([], sys.argv[1]);"
        "print(*(item.value for item in found)); print(*sys.modules)"
    )

    def run(word: str) -> list[list[str]]:
        command = [sys.executable, "-c", script, word]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [line.split() for line in done.stdout.splitlines()]

    every, loaded = run("")
    assert every == ganger.list_commands(click.Context(ganger))
    assert not {"ganger.cli.job", "ganger.cli.filter", "ganger.cli.up"} & set(loaded)
    assert run("qu")[0] == [name for name in every if name.startswith("qu")]
    assert run("--")[0] == ["--data", "--version", "--help"]


def test_levels_are_those_that_commands_may_lock() -> None:
    assert set(completing._LEVELS) <= set(LockNeeds.__struct_encode_fields__)
