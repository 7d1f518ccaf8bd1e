"""What LUXI's methods are made of: a conversation, what it asks, and what its caller gives."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from ...transport.envelopes import Address
from ...transport.messages import Request

ANSWER_SECONDS: Final = 170.0
"""How long a component may take: Ganeti's clients wait for 180 s."""


class Ask(NamedTuple):
    """What a method wants to know next. ``seconds``: how long the reply may take."""

    to: Address[Any]
    request: Request[Any]
    seconds: float = ANSWER_SECONDS


class MethodContext(NamedTuple):
    """What a method needs of outside: a new ``uuid`` for what is made, and monotonic seconds.

    ``connection``: the number of the caller's connection, on which no two methods are under way.
    """

    connection: int
    uuid: str
    clock: Callable[[], float]
    may_write: bool = True
    """Whether the caller may do and see everything, or only read what all may know."""


Talk = Generator[Ask, Any, object]
"""A method under way. It returns its result; `msgspec.Raw` is JSON already."""


class LuxiMethod(NamedTuple):
    """``takes``: the types of the arguments, of which the last ``optional`` may be missing."""

    takes: tuple[Any, ...]
    talk: Callable[..., Talk]
    is_writing: bool = False
    optional: int = 0
    takes_opcodes: bool = False
    """Opcodes have checks of their own."""


JobId = Annotated[int, msgspec.Meta(ge=0, lt=10**18)]
"""A job id."""

JobIds = list[JobId] | None

Fields = list[str]
