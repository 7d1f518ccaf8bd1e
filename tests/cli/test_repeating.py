"""Commands that change something: the key under which they can be repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cli import stand_in

from ganger.cli.main import ganger
from ganger.storage import errors
from ganger.transport.messages import LimitsRead

UUID = "00000000-0000-4000-8000-000000000001"
COMMANDS = [
    ("config", "set", "cluster/mac_prefix", "aa:00:00"),
    ("cluster", "init", "blue"),
    ("cluster", "modify", "--run-slots", "4"),
    ("queue", "limit", "4"),
    ("filter", "add", "--action", "PAUSE"),
    ("filter", "replace", UUID, "--action", "PAUSE"),
    ("filter", "delete", UUID),
    ("job", "retry", "7"),
]


class Changing:
    """Stands for the client of a daemon that carries out each change, or says that it may have."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.name = "ganger"
        self.refusal: errors.GangerError | None = None

    def objects(self, _: str) -> list[dict[str, Any]]:
        return [{"cluster_name": self.name}]

    def limits(self, *, key: str | None = None, **_: object) -> LimitsRead:
        if key is not None:
            self._change(key=key)
        return LimitsRead(running_jobs_max=4, tracked_jobs_max=4)

    def _change(self, *_: object, key: str, **__: object) -> str:
        self.keys.append(key)
        if self.refusal is not None:
            raise self.refusal
        return UUID

    set_values = add_filter = replace_filter = delete_filter = retry = _change


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Changing:
    daemon = Changing()
    stand_in.use(monkeypatch, daemon)
    return daemon


def typed(*words: str) -> Result:
    return CliRunner().invoke(ganger, words, standalone_mode=False)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_a_change_with_an_unknown_outcome_names_the_key_that_makes_a_repetition_safe(
    daemon: Changing, words: tuple[str, ...]
) -> None:
    daemon.refusal = errors.DeadlineError("no answer")
    failed = typed(*words)
    assert isinstance(failed.exception, errors.DeadlineError)
    text, _, key = str(failed.exception).partition(" (to repeat it safely: --key ")
    key = key.removesuffix(")")
    assert (text, len(key)) == ("no answer", 32)
    # The change was made: that is why it is repeated.
    daemon.refusal, daemon.name = None, "blue"
    assert typed(*words, "--key", key).exception is None
    first, second = daemon.keys
    assert first == second
    assert first.startswith(key)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_a_refused_change_names_no_key(daemon: Changing, words: tuple[str, ...]) -> None:
    daemon.refusal = errors.BadRequestError("no")
    assert str(typed(*words).exception) == "no"
    assert isinstance(typed(*words, "--key", "").exception, errors.UsageError)
    assert len(daemon.keys) == 1


def test_each_rule_that_is_deleted_has_a_key_of_its_own(daemon: Changing) -> None:
    other = UUID.replace("1", "2")
    typed("filter", "delete", UUID, other, "--key", "k")
    assert daemon.keys == [f"k/{UUID}", f"k/{other}"]


def test_to_show_the_limit_needs_no_key(daemon: Changing) -> None:
    assert typed("queue", "limit").exception is None
    assert daemon.keys == []


def test_a_cluster_is_initialised_once(daemon: Changing, tmp_path: Path) -> None:
    daemon.name = "blue"
    again = typed("--data", str(tmp_path), "cluster", "init", "blue")
    assert "the cluster is initialised" in str(again.exception)
    other = typed("--data", str(tmp_path), "cluster", "init", "red", "--key", "k")
    assert "is called blue" in str(other.exception)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_a_key_has_no_control_characters(daemon: Changing, words: tuple[str, ...]) -> None:
    refused = typed(*words, "--key", "a\x1b[2Jb").exception
    assert isinstance(refused, errors.UsageError)
    assert str(refused) == "--key: expected no control characters, got 'a\\x1b[2Jb'"
    assert daemon.keys == []
