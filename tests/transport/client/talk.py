"""Both ends of a client's session, without a line between them: times are numbers."""

from __future__ import annotations

from collections.abc import Callable

from ganger.storage import errors, settings
from ganger.storage.jobs.job_views import LogLine, StatusChange
from ganger.storage.jobs.jobs import JobStatus, LogEntry
from ganger.transport import frames, messages
from ganger.transport.client import in_flight
from ganger.transport.client.session import Session
from ganger.transport.zmq.connection_event import ConnectionEvent

UNREACHABLE = "no daemon answers"
TIMEOUT = 30.0
HEARTBEAT = settings.CLIENT_HEARTBEAT_SECONDS


class Talk:
    """A session, a clock, and the daemon's end of the line."""

    def __init__(
        self, *, connected: bool = True, on_outage: Callable[[str], None] | None = None
    ) -> None:
        self.now = 1000.0
        self.is_open = connected
        self.sent: list[frames.Frame] = []
        self.session = Session(UNREACHABLE, TIMEOUT, on_outage)
        self.session.opened(self.now)
        if connected:
            self.link(ConnectionEvent.REACHED, ConnectionEvent.MADE)

    def link(self, *events: ConnectionEvent) -> None:
        for event in events:
            self.is_open = event is ConnectionEvent.MADE
            self.session.connection_changed(event, self.now)

    def reconnect(self) -> list[frames.Frame]:
        self.link(ConnectionEvent.LOST, ConnectionEvent.REACHED, ConnectionEvent.MADE)
        return self.turn()

    def call(
        self, message: messages.Request[in_flight.ReplyT], seconds: float = TIMEOUT
    ) -> in_flight.PendingCall[in_flight.ReplyT]:
        call = self.session.request(message, now=self.now, deadline=self.now + seconds)
        self.turn()
        return call

    def watch(
        self,
        *ids: int,
        seconds: float | None = None,
        is_final_only: bool = False,
        is_gathered: bool = False,
    ) -> in_flight.PendingWatch:
        deadline = None if seconds is None else self.now + seconds
        watch = self.session.watch(
            list(ids) or None,
            log=not is_final_only,
            now=self.now,
            deadline=deadline,
            is_final_only=is_final_only,
            is_gathered=is_gathered,
        )
        self.turn()
        return watch

    def turn(self, seconds: float = 0.0) -> list[frames.Frame]:
        """Let time pass; returns what was sent."""
        self.now += seconds
        new: list[frames.Frame] = []

        def send(data: bytes) -> bool:
            if self.is_open:
                new.append(frames.decode(data, messages.ClientRequest))
            return self.is_open

        self.session.tick(self.now)
        self.session.flush(send, self.now)
        self.sent += new
        return new

    def reply(self, message: messages.Message, number: int | None = None) -> None:
        number = self.sent[-1].number if number is None else number
        self.session.received(frames.encode(message, number), self.now)

    def refuse(self, error: errors.GangerError, number: int | None = None) -> None:
        self.reply(messages.Failure(error.name, error.text), number)

    def tell(self, number: int, job_id: int, status: JobStatus) -> None:
        self.reply(messages.JobChanged(job=row(job_id, status)), number)

    def log(self, number: int, job_id: int, *serials: int) -> None:
        entries: list[LogEntry] = [(each, (1, 500_000), "message", str(each)) for each in serials]
        self.reply(messages.JobLogged(id=job_id, op_index=0, entries=entries), number)

    def read(self, watch: in_flight.PendingWatch) -> list[str]:
        """What a reader of the watch is given: ``3:running`` and ``3#1`` for a log line."""
        parts = []
        while (part := self.session.next_part(watch, self.now)) is not None:
            match part:
                case StatusChange():
                    parts.append(f"{part.job_id}:{part.status}")
                case LogLine():
                    parts.append(f"{part.job_id}#{part.serial}")
        return parts


def row(job_id: int, status: JobStatus = JobStatus.QUEUED) -> messages.JobSummary:
    return messages.JobSummary(id=job_id, status=status, summary="EXEC(make)", priority=0)


def failed(request: in_flight.PendingRequest) -> str:
    assert request.is_done
    return type(request.error).__name__


def ended(request: in_flight.PendingRequest) -> bool:
    """Whether it has come to a good end."""
    return request.is_done and request.error is None


def watching(
    *ids: int,
    seconds: float | None = None,
    is_final_only: bool = False,
    is_gathered: bool = False,
) -> tuple[Talk, in_flight.PendingWatch]:
    """A talk with a watch of these jobs."""
    talk = Talk()
    watch = talk.watch(*ids, seconds=seconds, is_final_only=is_final_only, is_gathered=is_gathered)
    return talk, watch


def calling(
    message: messages.Request[in_flight.ReplyT], seconds: float = TIMEOUT
) -> tuple[Talk, in_flight.PendingCall[in_flight.ReplyT]]:
    """A talk with this request."""
    talk = Talk()
    return talk, talk.call(message, seconds)
