"""Plays the transcripts beside this file, and compares what is decided with what they say.

README.md says how to read them. With ``GANGER_REWRITE=1`` the outputs are written anew.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.transcripts.deciding_players import Locking, Rules, Scheduling
from tests.transcripts.player import Command
from tests.transcripts.queue_players import HandOver, Recovery
from tests.transcripts.task_players import HostTasks, HubTasks

from ganger.storage import errors

HERE = Path(__file__).parent
TRANSCRIPTS = sorted(str(path.relative_to(HERE)) for path in HERE.glob("*/*.txt"))
PLAYERS: dict[str, Any] = {
    "hand-over": HandOver,
    "host-tasks": HostTasks,
    "hub-tasks": HubTasks,
    "locking": Locking,
    "recovery": Recovery,
    "rules": Rules,
    "scheduling": Scheduling,
}
DASHES = "\n----\n"


def commands(asked: str) -> list[Command]:
    found: list[Command] = []
    for line in asked.splitlines():
        if line.startswith("#"):
            continue
        if line.startswith(("[", "  ")):
            found[-1].data.append(line.strip())
            continue
        name, *words = shlex.split(line)
        pairs = [(key, value) for key, is_pair, value in map(_pair, words) if is_pair]
        found.append(Command(name, [word for word in words if "=" not in word], pairs, []))
    return found


def _pair(word: str) -> tuple[str, str, str]:
    return word.partition("=")


def carry_out(player: Any, command: Command) -> str:
    try:
        output: str = getattr(player, command.name.replace("-", "_"))(command)
    except errors.GangerError as error:
        return f"{' '.join(command.words[:1])} refused: {error.text}".lstrip()
    return output


def play(text: str, player: Any) -> str:
    """The same transcript, with the output that comes now."""
    blocks = []
    for block in text.strip().split("\n\n"):
        asked = block.partition(DASHES)[0]
        if not (due := commands(asked)):
            blocks.append(asked)
            continue
        outputs = [carry_out(player, command) for command in due]
        blocks.append(asked + DASHES + ("\n".join(filter(None, outputs)) or "ok"))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_the_transcript_is_what_is_decided(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (HERE / name).read_text()
    with PLAYERS[name.partition("/")[0]](tmp_path, monkeypatch) as player:
        played = play(text, player)
    if os.environ.get("GANGER_REWRITE"):
        (HERE / name).write_text(played)
    else:
        assert played.splitlines() == text.splitlines()


def test_every_subject_has_transcripts() -> None:
    assert {name.partition("/")[0] for name in TRANSCRIPTS} == set(PLAYERS)
