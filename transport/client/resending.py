"""Which requests a client may repeat, and how it reads the reply to a repeated one. No I/O.

Nearly every request may be sent twice: carried out twice, it leaves the same behind as once (a
submission has a key). The tables below name the exceptions.
"""

from __future__ import annotations

import functools
from typing import get_args, get_origin

from ...storage import errors
from .. import frames, messages
from ..messages import Message, Request

SENT_ONCE: tuple[type[Message], ...] = (messages.StopDaemon, messages.CrashComponent)
"""Requests that must not reach a second daemon."""

KEYED: tuple[type[Message], ...] = (messages.SubmitJobs, messages.RetryJob)
"""Requests with a key: carried out twice, they give the same reply twice."""

LASTING: tuple[type[Message], ...] = (messages.AwaitJobChange,)
"""Requests whose reply the daemon keeps back until something happens."""

_GONE: dict[type[Message], type[errors.GangerError]] = {
    messages.ArchiveJob: errors.ArchivedJobError,
    messages.DeleteFilter: errors.UnknownFilterError,
}
"""Requests that are refused when they are carried out again, and with which error."""

RETRIED = (errors.ComponentRestartedError, errors.BusyError)
"""After these errors a call is sent again."""

WATCH_RETRIED = (*RETRIED, errors.StoppingError)
"""After these errors a watch is sent again: the daemon's successor will take it up."""


def settled(message: Message, error: errors.GangerError) -> Message | None:
    """The lost reply to a request that an earlier sending may have carried out.

    ``error`` is what the repeated request got. None if it does not mean that the work is done.
    """
    if not isinstance(error, _GONE.get(type(message), ())):
        return None
    if isinstance(message, messages.ArchiveJob):
        return messages.ArchiveOutcome(archived=[message.id])
    return messages.Done()


def canceled(
    message: Message, outcome: messages.CancelOutcome, seconds: float
) -> messages.CancelOutcome:
    """The outcome for the user, if an earlier sending of ``message`` may have canceled the job.

    ``seconds``: how long the request is under way. What was canceled before was canceled by others.
    """
    is_ours = outcome.was_canceled and outcome.seconds_ago <= seconds
    if not (is_ours and isinstance(message, messages.CancelJob)):
        return outcome
    text = f"Job {message.id} was canceled"
    return messages.CancelOutcome(accepted=True, text=text, has_ended=True)


def unknown_outcome(message: Message, text: str) -> str:
    """What is said of a request that may have been carried out; ``text``: what came between."""
    if getattr(message, "dry_run", False):
        # It leaves nothing behind.
        return text
    has_key = getattr(message, "key", None) or getattr(message, "request", "")
    safe = f"; {errors.SAFE_UNDER_KEY}" if has_key else ""
    return f"the outcome of {name_of(message)} is unknown: {text}{safe}"


def last_refusal(message: Message, error: errors.GangerError) -> errors.GangerError:
    """The error of a request that may have been carried out, and was refused until its deadline."""
    text = unknown_outcome(message, error.text)
    is_lost = isinstance(error, errors.ComponentRestartedError)
    return type(error)(text) if is_lost else errors.DeadlineError(text)


def encode(message: Message, number: int, seconds: float) -> bytes:
    """The frame of a request; `BadRequestError` if it holds a value that no frame can."""
    try:
        return frames.encode(message, number, max(seconds, 0.0))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        text = f"{name_of(message)}: holds a value that cannot be sent: {error}"
        raise errors.BadRequestError(text) from error


@functools.cache
def is_for_clients(request: type[Message]) -> bool:
    """Whether a client can read each reply to ``request``: others are for processes of jobs."""
    return set(reply_types(request)) <= _READABLE


_READABLE = frozenset(get_args(messages.ClientReply))


@functools.cache
def reply_types(request: type[Message]) -> tuple[type[Message], ...]:
    """The types that answer ``request``, as its class says: ``Request[JobRows]``."""
    for base in getattr(request, "__orig_bases__", ()):
        if get_origin(base) is Request:
            (reply,) = get_args(base)
            return get_args(reply) or (reply,)
    raise TypeError(request)


def name_of(message: Message) -> str:
    """What messages for people call this message."""
    return str(type(message).__struct_config__.tag)
