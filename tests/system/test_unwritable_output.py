"""Every command whose standard output is closed or full ends with a failure and one clear line.

The commands run in this process: to start one for each would take most of the time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click
import pytest
from tests.faults.harness import Daemon

from ganger import Client
from ganger.cli import main, output

REASONS = {"closed": "it is closed", "full": "No space left on device"}

PRINTING = (
    "--version", "--help", "status", "completion bash", "cluster info", "config get cluster",
    "job list", "job info 1", "job eta --all", "job why 2", "job watch 1",
    "queue limit", "queue simulate", "queue simulate -o json",
    "queue simulate --generate mixed --jobs 5 --policy fifo",
    "lock list", "lock list -o json", "query job", "query job -o json", "query-fields job",
    "filter list",
)  # fmt: skip
"""Commands that show something of a daemon with an ended job, 1, and a pending one, 2."""


def commands() -> Iterator[str]:
    """The words of all commands."""
    left: list[tuple[str, click.Command]] = [("", main.ganger)]
    while left:
        words, command = left.pop()
        if not isinstance(command, click.Group):
            yield words.strip()
            continue
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            left.append((f"{words} {name}", found))


@contextmanager
def unwritable_output(where: str) -> Iterator[None]:
    """Meanwhile this process has no standard output, or one on a full disk."""
    stream: Any = sys.stdout
    kept = os.dup(1)
    os.close(1)
    try:
        if where == "full":
            assert os.open("/dev/full", os.O_WRONLY) == 1
            sys.stdout = os.fdopen(1, "w", closefd=False)
        else:
            sys.stdout = None  # as the interpreter has it then
        yield
    finally:
        # What it could not write must not come later.
        with suppress(OSError):
            opened: Any = sys.stdout
            opened.close()
        sys.stdout = stream
        output.missing.clear()
        os.dup2(kept, 1)
        os.close(kept)


def outcome(words: str, where: str) -> int:
    """The exit code of this command."""
    with unwritable_output(where), pytest.raises(SystemExit) as caught:
        main.main(words.split())
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize("where", list(REASONS))
def test_a_command_that_cannot_print_fails(
    daemon: Daemon,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    where: str,
) -> None:
    monkeypatch.setenv("GANGER_DATA", str(daemon.data))
    client.wait(client.submit({"OP_ID": "OP_TEST_DELAY", "duration": 0}))
    client.add_filter(priority=1, predicates=[], action="PAUSE")
    client.submit({"OP_ID": "OP_TEST_DELAY", "duration": 0})
    described = [f"{words} --help" for words in commands()]
    assert len(described) > 40, "all commands, with those of groups"
    found = {}
    for words in (*PRINTING, *described):
        code = outcome(words, where)
        found[words] = code, capfd.readouterr().err
    line = f"ganger: standard output: {REASONS[where]}\n"
    assert {words: told for words, told in found.items() if told != (74, line)} == {}
