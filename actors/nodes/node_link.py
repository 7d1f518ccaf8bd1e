"""The component with which a host's daemon calls the master, and answers what jobs there ask.

The hub passes on frames of `TaskRequest`: to submit a job of one opcode, to read its output and its
end, to cancel it. They go to the components of this daemon like those of a client, and the replies
go back. So a task is a job here, and a request may come again after each break.

The link tries the masters' endpoints one after the other, until one answers.
"""

from __future__ import annotations

import functools
import itertools
import secrets
import time
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from ...storage import errors, settings
from ...storage.access.keys import KeyPair
from ...storage.jobs.origins import Submitter
from ...storage.nodes import begun_tasks, host_table, membership, seals, task_settings
from ...storage.opcodes import catalogue
from ...storage.version import version
from ...transport import frames, messages
from ...transport.envelopes import Address, Envelope
from ...transport.messages import RECEIVERS
from ...transport.messages.base import PROTOCOL
from ...transport.zmq.connection_event import ConnectionEvent
from ...transport.zmq.dealer import Dealer
from ..processes import host_figures
from ..runtime.addresses import JOB_QUEUE, OUTPUT_READER
from ..runtime.component import Component
from . import versions
from .task_answers import AnswerTo, BeginningOf, EndOf
from .task_ends import TaskEnds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...storage.disk.paths import Places
    from ..runtime.component import Runtime
    from ..runtime.dispatcher import Alarm

_FRAMES_AT_ONCE = 64
_PEER = b"master"
_BEHIND_EVERYTHING = 2**62
_TASKS = ("OP_EXEC", "OP_NODE_CALL", "OP_NODE_COPY", "OP_TEST_DELAY")


class _Open(msgspec.Struct, frozen=True):
    """A call that a component works at: its number on the connection, and that of its frame."""

    receiver: str
    number: int
    inner: int
    connection: int
    reads: int = 0
    """The job for more output of which it waits; 0: none."""


class NodeLink(Component[messages.NodeLinkMessage]):
    """Owns the connection to the master."""

    name = "node_link"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._dealer: Dealer | None = None
        self._endpoints = itertools.cycle([""])
        self._is_known = False
        self._is_foreign = False
        """Whether it has greeted as a master with other messages, on this connection."""
        self._is_look_due = False
        self._has_heard = False
        """Whether this endpoint has said why there is no master."""
        self._connection = 0
        """Which connection this is: replies to calls of an earlier one are dropped."""
        self._open: dict[int, _Open] = {}
        self._alarms: dict[int, Alarm] = {}
        """Those that answer a task's beginning, if its end does not come before."""
        self._numbers = itertools.count(1)
        self._last_problem = ""
        self._ends = TaskEnds(runtime, self._say)
        self._measuring: list[tuple[int, int]] = []
        """The requests for the figures of this machine: connection and number of each."""
        self._run = secrets.token_hex(8)

    def boot(self) -> None:
        """Call the first master."""
        found = membership.read(self.places)
        if found is None:
            raise errors.DataDirectoryError(f"{self.places.membership}: there is no such file")
        self._membership = found
        self._seal = seals.begin(self.places.data)
        self._era = begun_tasks.era(self.places, found.directory)
        self._endpoints = itertools.cycle(found.endpoints)
        pair = KeyPair(public=found.public, secret=found.secret, server=found.server)
        self._dealer = Dealer(next(self._endpoints), pair)
        self._tell("it has not answered yet")
        for descriptor in self._dealer.filenos():
            self.runtime.watch(descriptor)
        self._look_later()

    def close(self) -> None:
        """Close the connection."""
        if self._dealer is not None:
            self._dealer.close()

    def receive(self, envelope: Envelope[messages.NodeLinkMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.MasterDue():
                self._try_next()
            case messages.FramesWaiting():
                pass  # The end of this turn reads them.
            case messages.ComponentReplaced():
                self._refuse_forgotten(message.component)
            case messages.TaskEnded():
                self._read_ended(message)
            case messages.TaskStored():
                self._await_end(message)
            case messages.TaskReplyDue():
                self._answer(message.handle, message.frame)
            case messages.TaskEndDue():
                self._ends.look_again(message.key)
            case messages.OwnFiguresMeasured():
                self._tell_figures(message)
            case _:
                assert_never(message)

    def readable(self, _: Iterable[int]) -> None:
        """The connection has news: `turn_ended` reads them."""

    def turn_ended(self) -> None:
        """Read everything: the descriptors are edge-triggered, also after a send."""
        assert self._dealer is not None
        for _ in range(_FRAMES_AT_ONCE):
            item = self._dealer.take()
            if item is None:
                return
            if isinstance(item, bytes):
                self._take_in(item)
            else:
                self._follow(item)
        self.runtime.tell(Address(self.name), messages.FramesWaiting())

    # ------------------------------------------------------------ the connection

    def _follow(self, event: ConnectionEvent) -> None:
        if event is ConnectionEvent.REACHED:
            return
        was_known, self._is_known, self._is_foreign = self._is_known, False, False
        self._look_later()
        self._connection += 1
        if self._open:
            self._open.clear()
            self.runtime.tell(JOB_QUEUE, messages.PeerGone(peer=_PEER))
        if event is ConnectionEvent.MADE:
            self._greet(self._connection)
        elif event is ConnectionEvent.REFUSED:
            self._has_heard = True
            text = "the master does not know this host's key, as if it had removed the node"
            self._note(f"{text}; a new invitation lets it join again")
        elif was_known:
            self._note("the connection to the master has ended")

    def _greet(self, connection: int) -> None:
        def known(found: messages.LastId) -> None:
            if connection == self._connection and self._has_all_tasks(found.last_id):
                greeting = messages.GreetMaster(
                    directory=self._membership.directory,
                    run=self._run,
                    last_id=found.last_id,
                    seal=self._seal.present,
                    following_seal=self._seal.following,
                    live={**versions.live(), "era": self._era.word},
                )
                self._say(greeting, next(self._numbers))

        def refused(error: errors.GangerError) -> None:
            # `_try_next` connects anew.
            self.log.warning("the master is not greeted", error=error.text)

        self.runtime.ask(JOB_QUEUE, messages.ReadLastId(), known, refused)

    def _has_all_tasks(self, last_id: int) -> bool:
        """Let the master refuse this directory if it has forgotten tasks; False: not yet."""
        if last_id < self._era.last_id:
            self.log.error("this data directory is an older copy: it has forgotten tasks")
            try:
                self._seal = seals.discard(self.places.data)
            except errors.StorageError as error:
                self.log.warning("the master is not greeted", error=error.text)
                return False
            self._era = begun_tasks.renew(self.places, self._membership.directory)
        return True

    def _look_later(self) -> None:
        if not self._is_look_due:
            self._is_look_due = True
            self.runtime.later(settings.NODE_CALL_SECONDS, messages.MasterDue())

    def _try_next(self) -> None:
        """No answer within the time: the master may be at another endpoint.

        While a master has answered, nobody looks: the connection tells when it is lost.
        """
        assert self._dealer is not None
        self._is_look_due = False
        if self._is_known:
            return
        endpoint = next(self._endpoints)
        if not self._has_heard:
            self._note(f"the master has not answered at {self._dealer.endpoint}")
        self._has_heard = False
        self._dealer.move(endpoint)
        self._look_later()

    def _note(self, problem: str) -> None:
        if problem != self._last_problem:
            self._last_problem = problem
            self.log.warning("no master", problem=problem)
            self._tell(problem)

    def _tell(self, problem: str) -> None:
        """Note how the call is, for who asks the daemon."""
        assert self._dealer is not None
        states, found = self.runtime.host.master_states, self._membership
        before = states[-1] if states else None
        is_as_before = before is not None and before.connected is self._is_known
        since = before.since if is_as_before and before else self.runtime.wall_clock()
        states[:] = [
            messages.MasterState(
                node=found.name,
                cluster=found.cluster_name,
                endpoint=self._dealer.endpoint,
                connected=self._is_known,
                since=since,
                problem=problem,
            )
        ]

    def _say(self, message: messages.Message, number: int) -> bool:
        assert self._dealer is not None
        return self._dealer.send(frames.encode(message, number))

    # ------------------------------------------------------------ calls

    def _take_in(self, data: bytes) -> None:
        number = 0
        try:
            frame = frames.decode(data, messages.ToNode)
            number = frame.number
            self._take_message(number, frame.message)
        except errors.GangerError as error:
            if isinstance(error, frames.UnreadableMessageError):
                number = error.number
                if error.is_of_other_version:
                    # It would answer a reply, and that would be answered, without an end.
                    self._has_heard = True
                    self._note(f"the master speaks another version of Ganger: {error.text}")
                    return
            self.log.warning("the master's request is refused", error=error.text)
            self._say(messages.Failure(error.name, error.text), number)

    def _take_message(self, number: int, message: Any) -> None:  # noqa: ANN401 - one of a union
        match message:
            case messages.NodeGreeted() as found if why := versions.problem_of_master(found):
                self._has_heard = self._is_foreign = True
                self._note(why)
            case messages.NodeGreeted() as found:
                self._is_known, self._last_problem = True, ""
                self._seal = seals.settle(self.places.data, self._seal)
                self._tell("")
                self.log.info("the master has answered", node=found.name)
                self._learn(found.endpoints)
            case messages.Failure() as failure:
                self._has_heard = True
                self._note(failure.text)
            case _ if self._is_foreign:
                pass  # It asks again on the next connection.
            case messages.CallTask() as call if call.known_key:
                self._take_call_if_known(number, call)
            case messages.CallTask() as call:
                self._take_call(number, call.frame)
            case messages.EndTask() as asked:
                self._ends.end(asked.key, number)
            case messages.MeasureFigures() as asked:
                self._measure(number, asked.storage)

    def _learn(self, places: list[str]) -> None:
        """Keep where the master is from now on, and call it there.

        The endpoint that has just answered stays the last one until another one has.
        """
        assert self._dealer is not None
        present = self._dealer.endpoint
        found = places if present in places else [*places, present]
        if not places or found == self._membership.endpoints:
            return
        changed = msgspec.structs.replace(self._membership, endpoints=found)
        membership.write(self.places, changed)
        self._membership = changed
        self._endpoints = itertools.cycle(found)
        self.log.info("the master is at other endpoints", endpoints=places)
        if found is not places:
            self._dealer.move(next(self._endpoints))

    def _measure(self, number: int, storage: list[str]) -> None:
        """Say how this machine is. A thread measures, because a file system may hang."""
        self._measuring.append((self._connection, number))
        if len(self._measuring) == 1:
            self.runtime.in_thread(functools.partial(_measured, storage, self.places))

    def _tell_figures(self, message: messages.OwnFiguresMeasured) -> None:
        waiting, self._measuring = self._measuring, []
        for connection, number in waiting:
            if connection == self._connection:
                self._say(messages.FiguresMeasured(host=message.host), number)

    def _take_call_if_known(self, number: int, call: messages.CallTask) -> None:
        """Answer what asks for a task only if it is here: it may have been put back to a copy."""
        inner, connection = self._decoded(number, call.frame), self._connection
        if inner is None:
            return
        asked: Any = inner.message

        def refuse(error: errors.GangerError) -> None:
            if connection == self._connection:
                failure = messages.Failure(error.name, error.text)
                frame = frames.encode(failure, inner.number)
                self._say(messages.TaskAnswered(frame=frame), number)

        def found(known: messages.JobsFound) -> None:
            ids = [job_id for one in known.found for job_id in one]
            if not (ids if isinstance(asked, messages.RunTask) else asked.id in ids):
                refuse(errors.JobStateError(f"the host {host_table.FORGOTTEN_IN_ERA}"))
            elif connection == self._connection:
                self._take_call(number, call.frame)

        if isinstance(asked, messages.StoreInput):
            self._take_call(number, call.frame)
            return
        names = messages.FindJobs(names=[call.known_key])
        self.runtime.ask(JOB_QUEUE, names, found, refuse)

    def _decoded(self, number: int, data: bytes) -> frames.Frame | None:
        try:
            return frames.decode(data, messages.TaskRequest)
        except errors.FrameError as error:  # Its number is that of the frame within.
            self._say(messages.Failure(error.name, error.text), number)
            return None

    def _take_call(self, number: int, data: bytes) -> None:
        if (inner := self._decoded(number, data)) is None:
            return
        message: Any = inner.message
        receiver = RECEIVERS.get(type(message), JOB_QUEUE.name)
        handle = next(self._numbers)
        is_wait = isinstance(message, messages.ReadOutput) and message.wait_seconds > 0
        reads = message.id if is_wait else 0
        self._open[handle] = _Open(receiver, number, inner.number, self._connection, reads)
        answer_to = AnswerTo(self, inner.number)
        if isinstance(message, messages.AwaitTask):
            self._watch(handle, message.id, answer_to)
        elif isinstance(message, messages.RunTask):
            name = f"{self._membership.cluster_name}:{message.key}"
            submitter = Submitter(user=name, via="node", era=self._era.word)
            run = messages.SubmitJobs(jobs=[message.spec], key=message.key, submitter=submitter)
            begin = BeginningOf(self, message.seconds, answer_to)
            self._submit(Envelope(run, begin, handle, None, _PEER), run)
        else:
            envelope: Envelope = Envelope(message, answer_to, handle, None, _PEER)
            self.runtime.forward(Address(receiver), envelope)

    def _watch(self, handle: int, job_id: int, otherwise: AnswerTo) -> None:
        watch = messages.WatchJobs(ids=[job_id], is_final_only=True)
        ends = EndOf(self, job_id, otherwise)
        self.runtime.forward(JOB_QUEUE, Envelope(watch, ends, handle, None, _PEER))

    def note_stored(self, message: messages.TaskStored) -> None:
        """A task is durable; said in any thread."""
        self.runtime.host.directory.tell(self.name, Envelope(message))

    def _await_end(self, message: messages.TaskStored) -> None:
        """Most tasks end soon: then the answer to their beginning is their end."""
        handle = message.handle
        self._ends.note_answer(handle)
        if (found := self._open.get(handle)) is not None:
            due = messages.TaskReplyDue(handle=handle, frame=message.frame)
            self._alarms[handle] = self.runtime.later(message.seconds, due)
            self._watch(handle, message.job_id, AnswerTo(self, found.inner))

    def _submit(self, envelope: Envelope, message: messages.SubmitJobs) -> None:
        """Submit a task, unless it was here before: the queue knows the keys of live jobs alone."""

        def found(known: messages.JobsFound) -> None:
            ids = [job_id for one in known.found for job_id in one]
            if ids:
                envelope.reply(messages.JobsSubmitted(ids=ids[-1:], is_repeat=True))
                return
            self._ends.note_submission(message.key or "", envelope.number)
            self.runtime.forward(JOB_QUEUE, envelope)

        try:
            for opcode in (one for spec in message.jobs for one in spec.ops):
                self._check(opcode)
        except errors.GangerError as error:
            envelope.refuse(error)
            return
        names = [spec.name for spec in message.jobs if isinstance(spec.name, str)]
        self.runtime.ask(JOB_QUEUE, messages.FindJobs(names=names), found, envelope.refuse)

    def _check(self, opcode: Mapping[str, Any]) -> None:
        """Raise `NotAllowedError` for what the host's own settings do not let a task do."""
        op_id = str(opcode.get("OP_ID"))
        if op_id not in _TASKS:
            declared = catalogue.find(op_id)
            if declared is None or declared.built_in or not declared.runs_on_nodes:
                why = "no package here has it" if declared is None else "it does not run on nodes"
                raise errors.NotAllowedError(f"{op_id}: {why}")
        # Read for each task: a change holds at once.
        task_settings.read(self.places.node_settings).check(opcode)

    def _read_ended(self, message: messages.TaskEnded) -> None:
        if (found := self._open.get(message.handle)) is not None:
            self._end_waits(message.job_id)
            request = messages.ReadJob(id=message.job_id)
            answer_to = AnswerTo(self, found.inner)
            self.runtime.forward(
                JOB_QUEUE, Envelope(request, answer_to, message.handle, None, _PEER)
            )

    def _end_waits(self, job_id: int) -> None:
        """Let no request wait for more output of this job, which has ended: the master asks anew.

        The reader answers one that waits when the next one comes, which wants nothing.
        """
        waiting = [handle for handle, one in self._open.items() if one.reads == job_id]
        for handle in waiting:
            del self._open[handle]
            last = messages.ReadOutput(id=job_id, offset=_BEHIND_EVERYTHING)
            self.runtime.forward(OUTPUT_READER, Envelope(last, None, handle, None, _PEER))

    def note_end(self, handle: int, job_id: int) -> None:
        """A job has ended; said in any thread."""
        due = messages.TaskEnded(handle=handle, job_id=job_id)
        self.runtime.host.directory.tell(self.name, Envelope(due))

    def pass_on(self, handle: int, frame: bytes) -> None:
        """A component has answered, in any thread."""
        due = messages.TaskReplyDue(handle=handle, frame=frame)
        self.runtime.host.directory.tell(self.name, Envelope(due))

    def _answer(self, handle: int, frame: bytes) -> None:
        self._ends.note_answer(handle)
        if (alarm := self._alarms.pop(handle, None)) is not None:
            alarm.cancel()
        found = self._open.pop(handle, None)
        if found is not None and found.connection == self._connection:
            self._say(messages.TaskAnswered(frame=frame), found.number)

    def _refuse_forgotten(self, component: str) -> None:
        error = errors.RequestInterruptedError(f"component {component} was restarted")
        failure = messages.Failure(error.name, error.text)
        for handle, found in list(self._open.items()):
            if found.receiver == component:
                self._answer(handle, frames.encode(failure, found.inner))
        if component == JOB_QUEUE.name:
            self._ends.forget_submissions()


def _measured(storage: list[str], places: Places) -> messages.OwnFiguresMeasured:
    """What this machine says of itself."""
    host = messages.HostFigures(
        figures=host_figures.figures([*storage, places.data]),
        version=version(),
        protocol=PROTOCOL,
        files=host_figures.digests(places.cluster_files),
        time=time.time(),
    )
    return messages.OwnFiguresMeasured(host=host)
