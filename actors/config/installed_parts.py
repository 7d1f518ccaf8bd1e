"""Parts that packages bring to the configuration store.

They join by the entry point group `ganger.config_parts`. A part serves requests of its own, and
keeps files that follow the configuration. It runs in the store's turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from ...storage.cluster.configuration import Change, Configuration
    from ...transport.envelopes import Envelope
    from ...transport.messages import Message, Reply
    from ..runtime.component import Runtime
    from .change_line import ChangeLine
    from .stored_configuration import StoredConfiguration

Written = Callable[[str | None], None]
"""Takes why files are not written; None: they are."""


class StoreOfParts(Protocol):
    """What the store does for its parts."""

    def answer_in_force(self, envelope: Envelope, answer: Reply, changes: Sequence[Change]) -> None:
        """Send the reply to stored changes when they are in force."""

    def flush(self, envelope: Envelope, answer: Reply) -> None:
        """Write the whole configuration; then send ``answer``."""

    def write_files(self, envelope: Envelope, answer: Reply) -> None:
        """Write all files of the configuration anew; then send ``answer``."""

    def check_slots(self, wanted: int | None) -> None:
        """Raise `BadRequestError` if there cannot be this many run slots."""


class PartContext(NamedTuple):
    """What a part may use of the store."""

    runtime: Runtime
    configuration: StoredConfiguration
    changes: ChangeLine
    store: StoreOfParts


class ConfigPart:
    """A part that does nothing: packages override what they need."""

    takes: ClassVar[tuple[type[Message], ...]] = ()
    """The messages that come to this part."""

    def __init__(self, context: PartContext) -> None:
        self._context = context

    def begin(self) -> None:
        """Bring all files up to date: a crash may have left old ones."""

    def note(self, before: Configuration, after: Configuration, changes: Sequence[Change]) -> None:
        """The configuration has changed, durably."""

    def take(self, envelope: Envelope, message: Any) -> None:  # noqa: ANN401 - one of `takes`
        """Handle one message."""

    def turn_ended(self) -> None:
        """Store what the turn has collected, and answer."""

    def when_written(self, done: Written) -> None:
        """Call ``done`` when the part's files are as the configuration is now, or cannot be."""
        done(None)

    def close(self) -> None:
        """Write what is due; nothing is written later."""


class Parts:
    """All parts of the store, as one."""

    def __init__(self, context: PartContext, kinds: Iterable[type[ConfigPart]]) -> None:
        self._parts = [kind(context) for kind in kinds]
        self._takers = {kind: part for part in self._parts for kind in part.takes}
        for part in self._parts:
            context.configuration.when_changed(part.note)

    def begin(self) -> None:
        """Have all parts bring their files up to date."""
        for part in self._parts:
            part.begin()

    def take(self, envelope: Envelope, message: Message) -> bool:
        """Whether a part takes this message; it has done so."""
        part = self._takers.get(type(message))
        if part is not None:
            part.take(envelope, message)
        return part is not None

    def turn_ended(self) -> None:
        """The store's turn ends."""
        for part in self._parts:
            part.turn_ended()

    def when_written(self, done: Written) -> None:
        """Call ``done`` when the files of all parts are as the configuration is now."""

        def go_on(left: Sequence[ConfigPart], error: str | None) -> None:
            if error is not None or not left:
                done(error)
            else:
                left[0].when_written(lambda error: go_on(left[1:], error))

        go_on(self._parts, None)

    def close(self) -> None:
        """The store stops."""
        for part in self._parts:
            part.close()
