"""What owners of locks do in a history: drawn by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ganger.storage.locks.locks import LockLevel, LockMode
from ganger.transport import messages

if TYPE_CHECKING:
    import random

    from ganger.storage.locks.locks import Owner
    from ganger.transport.messages import Message

LOCKS = ("node/[lockset]", "node/a", "node/a", "node/b", "node-res/a", "cluster/config")
LEVELS = (LockLevel.NODE, LockLevel.NODE_RES, LockLevel.CONFIG)
MODES = ("exclusive", "exclusive", "shared", "release")


class Step(NamedTuple):
    """One request; a patient owner waits until a waiting request is granted."""

    message: Message
    is_patient: bool = True


def script(owner: Owner, dice: random.Random) -> list[Step]:
    """What the owner does, to the end, at which it has no locks."""
    steps = [_step(owner, dice) for _ in range(dice.randint(2, 6))]
    return [*steps, Step(messages.ReleaseLocks(owner))]


def _step(owner: Owner, dice: random.Random) -> Step:
    kind = dice.choices(
        ("request", "try", "take free", "release", "downgrade", "keep", "read"),
        (6, 3, 2, 2, 1, 1, 1),
    )[0]
    changes = [(dice.choice(LOCKS), dice.choice(MODES)) for _ in range(dice.choice((1, 1, 2)))]
    match kind:
        case "request":
            asked = messages.RequestLocks(owner, dice.choice((0, 0, -5)), changes)
            return Step(asked, is_patient=dice.random() < 0.8)
        case "try":
            return Step(messages.TryLocks(owner, changes))
        case "take free":
            wanted = [(dice.choice(LOCKS), dice.choice(list(LockMode))) for _ in range(2)]
            return Step(messages.TakeFreeLocks(owner, wanted, dice.choice((0, 0, 2))))
        case "release":
            level = dice.choice((None, *LEVELS))
            return Step(messages.ReleaseLocks(owner, level))
        case "downgrade":
            return Step(messages.DowngradeLocks(owner, dice.choice(LEVELS)))
        case "keep":
            return Step(messages.KeepLocks(owner, dice.sample(LOCKS, 2)))
        case _:
            return Step(messages.ReadOwner(owner))
