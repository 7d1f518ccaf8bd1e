"""Where replies go to what the master asks about tasks: as frames to the link (`node_link`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors
from ...transport import frames, messages

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from .node_link import NodeLink


class AnswerTo:
    """Where a component's reply goes: as a frame to the link."""

    def __init__(self, link: NodeLink, inner: int) -> None:
        self._link = link
        self._inner = inner

    def tell(self, envelope: Envelope) -> None:
        """Send a reply."""
        self._link.pass_on(envelope.number, self.frame(envelope))

    def frame(self, envelope: Envelope) -> bytes:
        """The frame of a reply."""
        try:
            return frames.encode_reply(envelope.message, self._inner)
        except errors.FrameError as error:
            return frames.encode(messages.Failure(error.name, error.text), self._inner)


class BeginningOf:
    """Where the answer to a task's submission goes: the link waits for the task's end a while."""

    def __init__(self, link: NodeLink, seconds: float, answer_to: AnswerTo) -> None:
        self._link = link
        self._seconds = seconds
        self._answer_to = answer_to

    def tell(self, envelope: Envelope) -> None:
        """Take the answer."""
        match envelope.message:
            case messages.JobsSubmitted(ids=[job_id], is_repeat=False):
                frame = self._answer_to.frame(envelope)
                stored = messages.TaskStored(
                    handle=envelope.number, job_id=job_id, frame=frame, seconds=self._seconds
                )
                self._link.note_stored(stored)
            case _:
                self._answer_to.tell(envelope)


class EndOf:
    """Where the parts of a watch go: the link hears of its end, or why there is none."""

    def __init__(self, link: NodeLink, job_id: int, otherwise: AnswerTo) -> None:
        self._link = link
        self._job_id = job_id
        self._otherwise = otherwise

    def tell(self, envelope: Envelope) -> None:
        """Take a part of the watch."""
        match envelope.message:
            case messages.WatchEnded():
                self._link.note_end(envelope.number, self._job_id)
            case messages.Failure():
                self._otherwise.tell(envelope)
