"""Messages that come twice change nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

import msgspec
from tests.torture.simulation import repeating
from tests.torture.simulation.core import CALM
from tests.torture.simulation.world import playground, world

from ganger.transport import messages


def test_every_message_is_known_to_come_once_or_perhaps_twice() -> None:
    accepted = {kind for union in messages.ACCEPTED.values() for kind in get_args(union)}
    accepted = accepted - {messages.PartNotice} | {*messages.PartNotice.__subclasses__()}
    listed = Counter((*repeating.LATE, *repeating.IN_LINE, *repeating.ONCE))
    assert listed == Counter(accepted)


def test_nothing_is_wrong_in_a_world_in_which_every_message_comes_twice(tmp_path: Path) -> None:
    character = msgspec.structs.replace(CALM, jobs=6, actions=16, slots=2, repeat_chance=1.0)
    with playground(tmp_path) as root, world(character, "each twice", root) as made:
        made.play()
        assert made.problems == []
        assert len(made.user.acknowledged) >= character.jobs
        assert made.injected["message repeated"] > 100
