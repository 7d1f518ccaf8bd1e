"""Changes that repeat an earlier one under its key: they get its reply, and change nothing.

A client that got no reply sends its request again, also to the daemon's successor. The reply is
stored with the change, in the journal and the history, as the answers of opcodes are. So a
repetition is told what the first one did, whatever others have changed since. Keys are one for each
user; the replies to the newest changes are kept (docs/decisions/keys-of-changes.md).
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import errors, request_keys
from ...storage.cluster.differences import masked
from ...transport import messages
from .change_line import Made
from .stored_configuration import Edit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...storage.cluster.configuration import Configuration
    from .change_line import Make
    from .stored_configuration import StoredConfiguration

KeyedChange = (
    messages.ChangeObjects
    | messages.SetValues
    | messages.ReplaceFilter
    | messages.DeleteFilter
    | messages.SetLimits
)

_REPLIES: dict[type[KeyedChange], type[messages.Reply]] = {
    messages.ChangeObjects: messages.ObjectsChanged,
    messages.SetValues: messages.ObjectsChanged,
    messages.ReplaceFilter: messages.FilterStored,
    messages.DeleteFilter: messages.Done,
    messages.SetLimits: messages.LimitsRead,
}

_DIGEST_BYTES = 12

_encode = msgspec.json.Encoder(order="deterministic").encode


def keyed(
    stored: StoredConfiguration,
    message: KeyedChange,
    make: Make,
    reply_of: Callable[[Configuration], messages.Reply],
    repeated: Callable[[Any], None],
) -> Make:
    """``make``, for a request that may repeat one whose changes are stored.

    ``reply_of`` gives the reply, from the configuration after the changes. ``repeated`` sends the
    reply to the first request again. `OutcomeUnknownError` if a loss of power may bring back an
    earlier change under the key.
    """
    if not message.request:
        return make
    request_keys.check(message.request)
    known_by = digest(message)
    stored.check_doubt(message.sender, message.request)

    def make_once(snapshot: Configuration) -> Made:
        known = stored.reply_to(message.sender, message.request)
        if known is None:
            made = make(snapshot)
            edit = made.edit._replace(request=message.request, digest=known_by, reply_of=reply_of)
            return made._replace(edit=edit)
        if known.digest != known_by:
            text = f"key: another change is stored under it, with serial number {known.serial}"
            raise errors.BadRequestError(text)
        reply = msgspec.convert(known.reply, _REPLIES[type(message)])
        again = functools.partial(repeated, reply)
        return Made(Edit((), message.sender, ""), lambda _: again())

    return make_once


def digest(message: KeyedChange) -> str:
    """A digest of what the request asks for; of secrets it knows only that there are some.

    `BadRequestError`: an object has a key that JSON cannot have.
    """
    plain = msgspec.structs.replace(message, sender="", request="")
    try:
        asked = msgspec.to_builtins(plain, str_keys=True)
    except TypeError as error:
        raise errors.BadRequestError("a key of an object: expected text") from error
    if isinstance(message, messages.SetValues):
        asked["values"] = [_nested(fields, value) for fields, value in asked["values"]]
    content = masked(asked)
    return hashlib.blake2b(_encode(content), digest_size=_DIGEST_BYTES).hexdigest()


def _nested(fields: Sequence[str], value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """The value below its fields, as in an object: there a secret is known by its field."""
    for field in reversed(fields):
        value = {field: value}
    return value
