"""Every error Ganger raises on purpose, with its exit code and wire name, in one tree.

Three branches say who must act: the caller (`BadRequestError`), the operator (`OperatorError`),
or nobody (`TryAgainError`). Mistakes of a programmer are plain exceptions and are never caught.
An error travels as its class name and its text; `from_wire` makes the same class again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar


class GangerError(Exception):
    """Something went wrong in Ganger."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    luxi_name: ClassVar[str] = "GenericError"

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text if text is not None else (type(self).__doc__ or "").split("\n")[0])

    @property
    def text(self) -> str:
        """The sentence shown to the user."""
        return str(self.args[0])

    @property
    def name(self) -> str:
        """The name under which the error travels: that of its class."""
        return type(self).__name__


# The caller must act: the request cannot be served as it is.


class BadRequestError(GangerError):
    """The request cannot be served as it is written."""

    exit_code = 1
    http_status = 400
    luxi_name = "OpPrereqError"

    error_code: ClassVar[str] = "wrong_input"
    """Ganeti's word for the kind of mistake, which goes with an ``OpPrereqError``."""


class UsageError(BadRequestError):
    """The command line is wrong."""

    exit_code = 2


class OpcodeError(BadRequestError):
    """An opcode is unknown, or one of its parameters is missing, unknown or mistyped."""


class InputLostError(OpcodeError):
    """What was sent before, as the input of an opcode, is gone: all of it must be sent again."""


class OperationMissingError(OpcodeError):
    """The opcode is known, but nothing on this system can run it."""


class DependencyError(BadRequestError):
    """A dependency is malformed or out of reach."""


class PlanError(BadRequestError):
    """The plan is malformed: an unknown or doubled name, or a cycle."""


class FrameError(BadRequestError):
    """The frame is too large, is not valid msgpack, or does not hold a known message."""


class TraceError(BadRequestError):
    """A trace of jobs is damaged, or a parameter of its simulation is impossible."""

    exit_code = 2


class UnknownJobError(BadRequestError):
    """There is no job with this id."""

    http_status = 404
    luxi_name = "JobLost"


class ArchivedJobError(UnknownJobError):
    """The job with this id is in the archive."""


class JobStateError(BadRequestError):
    """The job is not in a state in which this can be done."""

    http_status = 409


RETRY_FIRST = "retry job {} first"
RETRY_WHOLE = "every opcode of job {} succeeded; retry all of it to repeat them"
"""What helps against a `JobStateError`; interfaces name their own command where it stands."""


class LockRequestError(BadRequestError):
    """The lock request is invalid."""

    luxi_name = "GenericError"

    def __init__(self, text: str | None = None, concerns: object = None) -> None:
        super().__init__(text)
        self.concerns = concerns
        """The other owner of locks that it is about, if there is one."""


class LockOrderError(LockRequestError):
    """The request is out of lock order for what its owner holds."""


class LockWaitError(LockRequestError):
    """The owner has a waiting request."""


class LockRingError(LockRequestError):
    """The request would wait for an owner that waits for the requester."""


class LockContradictionError(LockRequestError):
    """The request asks for one lock in two ways."""


class FencedOwnerError(LockRequestError):
    """The owner's locks were taken away."""


class FilterRuleError(BadRequestError):
    """The filter rule is malformed."""


class UnknownFilterError(BadRequestError):
    """There is no filter rule with this UUID."""

    http_status = 404
    luxi_name = "GenericError"


class UnknownObjectError(BadRequestError):
    """The configuration has no object with this name or UUID."""

    http_status = 404
    error_code = "unknown_entity"


class ParameterError(BadRequestError):
    """A query compares a field with a value of another type, or names a field that is unknown."""

    luxi_name = "ParameterError"


class TagError(BadRequestError):
    """A tag is empty, too long or has invalid characters, or there are too many."""

    luxi_name = "TagError"


class AddressPoolError(BadRequestError):
    """An address is not in its network, or it is already reserved or already free."""

    luxi_name = "AddressPoolError"


class ReservationError(BadRequestError):
    """A resource cannot be reserved, because it is in use or reserved by another owner."""

    http_status = 409
    luxi_name = "ReservationError"


class StaleSerialError(BadRequestError):
    """The object was changed since it was read; read it again."""

    http_status = 409
    luxi_name = "ConfigurationError"


class IntegrityError(BadRequestError):
    """The change would make the configuration contradict itself."""

    http_status = 409
    luxi_name = "ConfigurationError"


class ModificationError(BadRequestError):
    """The objects of the configuration do not allow this modification."""

    http_status = 409
    luxi_name = "ConfigurationError"


class DiskIndexError(ModificationError):
    """A disk cannot be attached at this index."""

    luxi_name = "GenericError"


class DiskAttachedError(ModificationError):
    """A disk that is attached to another instance cannot be removed."""

    luxi_name = "ProgrammerError"


class ConfigVerifyError(BadRequestError):
    """The configuration contradicts itself."""

    luxi_name = "ConfigVerifyError"

    def __init__(self, text: str | None = None, details: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.details = list(details)
        """Each contradiction."""


class RejectedError(BadRequestError):
    """A filter rule rejects jobs of a submission."""

    ids: Sequence[int | None] = ()
    """For each job of the submission, its id; None: it is not stored."""

    rejected: Mapping[int, str] = MappingProxyType({})
    """Why each rejected job is rejected, by its place in the submission."""


class JobEndedError(BadRequestError):
    """A job has not ended in success."""

    http_status = 409
    job_id: int = 0
    reason: str = ""
    """Why, in one line."""

    cause: int | None = None
    """The id of the other job that is the root cause, if there is one."""


class JobFailedError(JobEndedError):
    """A job has failed."""


class JobTimedOutError(JobFailedError):
    """A job has exceeded its own time limit."""


class JobKilledError(JobFailedError):
    """A job was killed on request."""


class JobLostError(JobFailedError):
    """The process of a job has died, or could not be started."""


class JobSkippedError(JobEndedError):
    """A job was skipped, because of how a job has ended that it depends on."""


class JobRejectedError(JobEndedError):
    """A filter rule has rejected a job."""


class JobCanceledError(JobEndedError):
    """A job was canceled."""


class NotAllowedError(BadRequestError):
    """The peer may not do this."""

    http_status = 403


# Nobody must act: the same request may succeed later.


class TryAgainError(GangerError):
    """The request could not be served now; it may succeed later."""

    exit_code = 75
    http_status = 503


class QueueDrainedError(TryAgainError):
    """Job queue is drained, refusing job."""

    luxi_name = "JobQueueDrainError"


class BusyError(TryAgainError):
    """The daemon has too much queued work to take this request now."""


class DeadlineError(TryAgainError):
    """No answer came before the deadline."""

    exit_code = 124
    http_status = 504


class DaemonUnreachableError(TryAgainError):
    """No daemon answers for this data directory."""

    exit_code = 1


class ConnectionLostError(DaemonUnreachableError):
    """The connection was lost before the answer came; the outcome is unknown."""


class ComponentRestartedError(TryAgainError):
    """The component that served the request was restarted; the outcome is unknown."""


class RequestInterruptedError(ComponentRestartedError):
    """The component that had the request was restarted before it answered."""


class StoppingError(TryAgainError):
    """The daemon is shutting down."""


# The operator must act.


class OperatorError(GangerError):
    """The operator must act before this can work."""

    exit_code = 70


class StorageError(OperatorError):
    """A file could not be read, written or flushed."""

    exit_code = 74


class ReadOnlyError(StorageError):
    """The disk refuses writes; the daemon takes no changes until it works again."""

    http_status = 503


class DiskFullError(StorageError):
    """The disk is full, or nearly: remove something, such as jobs that have ended."""

    http_status = 503


SAFE_UNDER_KEY = "the same key makes a repetition safe"
"""What an error says of a request with a key, if nobody knows whether it was carried out."""


class OutcomeUnknownError(StorageError):
    """A flush failed, and whether the change took effect is unknown."""

    @classmethod
    def of(cls, cause: GangerError) -> OutcomeUnknownError:
        """The error for a change that was written, and that ``cause`` kept from being durable."""
        return cls(f"{cause.text}; whether this change took effect is unknown")

    def under_key(self) -> OutcomeUnknownError:
        """The same error, for a request with a key."""
        return type(self)(f"{self.text}; {SAFE_UNDER_KEY}")


class DirectoryLockedError(OperatorError):
    """Another daemon already uses this queue directory."""


class DirectoryLostError(OperatorError):
    """The queue directory was deleted or replaced while the daemon ran."""


class DataDirectoryError(OperatorError):
    """The data directory is missing, not usable, or of an unknown version."""

    exit_code = 1


class NotOwnerError(DataDirectoryError):
    """The data directory belongs to another user, or others may write into it."""


class RequestFatalError(OperatorError):
    """The component that served the request did not survive it; it is not repeated."""

    @classmethod
    def of(cls, component: str, problem: str) -> RequestFatalError:
        """The error for a request over which ``component`` failed or hung."""
        return cls(
            f"component {component} did not survive this request ({problem}) and was restarted; "
            "it is not repeated, and whether it took effect is unknown (see the daemon's log)"
        )


class RestartLimitError(OperatorError):
    """A component crashed too often; the daemon stops."""


def _tree(root: type[GangerError]) -> dict[str, type[GangerError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


def from_wire(name: str, text: str) -> GangerError:
    """The error whose class is called ``name``, with ``text``; `GangerError` if unknown."""
    return _tree(GangerError).get(name, GangerError)(text)
