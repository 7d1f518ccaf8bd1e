"""The configuration as the store owns it: the present snapshot, and its files.

A change is checked against the whole (`StoredConfiguration.draft`) and appended to the log. When it
is durable there, it is visible (`StoredConfiguration.stored`), and then entered into the history
(`enter`). A refused one leaves no trace (`refused`). What is drafted meanwhile is the next batch.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from ...storage import config_files, config_log, errors, settings
from ...storage.cluster.configuration import Change, Configuration
from ...storage.cluster.differences import differences_of
from ...storage.cluster.integrity import Index
from ...storage.cluster.objects import ObjectKind
from ...storage.config_files import KeyedReply
from ...storage.config_history import ConfigHistory
from ...storage.disk import quarantine, reserve
from ...storage.log import segments
from ...storage.log.records import ConfigChanged, OpcodeAnswer, encoded
from ...storage.queue_files import job_files

if TYPE_CHECKING:
    from ...storage.disk.paths import Places


Listener: TypeAlias = Callable[[Configuration, Configuration, Sequence[Change]], None]


class HistoryEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the history: which change, when, by whom, why, and what it changed.

    ``answer``: of the opcode that made the change. ``request`` and what follows: as in `Edit`.
    """

    serial: int
    time: float
    who: str
    why: str
    changes: list[tuple[str, str | None, str | None]]
    """(path, JSON before, JSON after); secrets are masked."""

    answer: OpcodeAnswer | None = None
    request: str = ""
    digest: str = ""
    reply: Any = None


class Edit(NamedTuple):
    """Changes that are made together: who makes them, and why.

    ``answer``: of the opcode that makes them. ``request``: the key under which they are asked for,
    empty if there is none; ``digest``: of that request; ``reply_of``: gives the reply to it.
    """

    changes: Sequence[Change]
    who: str
    why: str
    answer: OpcodeAnswer | None = None
    request: str = ""
    digest: str = ""
    reply_of: Callable[[Configuration], Any] | None = None


class _Draft(NamedTuple):
    """Changes that are accepted, and not stored yet."""

    before: Configuration
    after: Configuration
    changes: Sequence[Change]
    record: ConfigChanged


class Batch(NamedTuple):
    """Changes that go into the log together, on top of the configuration ``base``."""

    base: int
    known: int
    """The newest serial number that was found in the log."""

    changes: list[bytes]


class StoredConfiguration:
    """The only writer of ``config.data`` and its history."""

    def __init__(
        self, places: Places, first: Callable[[], dict[str, Any]], now: float = 0.0
    ) -> None:
        """Read the configuration, or store the ``first`` one. Raises `DataDirectoryError`."""
        self._places = places
        stored = config_files.read_stored(places.config)
        entered = config_files.last_entered(places.config_history) or 0
        self.quarantined = _quarantined(places, stored)
        """Of each file that cannot be read, or not to its end, a sentence."""

        found = stored.whole
        if found is None:
            if entered:
                raise errors.DataDirectoryError(_gone(places))
            found = first()
            config_files.write(places.config, found)
        self.snapshot = Configuration.load(found)
        self._folder = job_files.folder_inode(os.fspath(places.data))
        self._fence = threading.Lock()
        self._is_closed = False
        self._history = ConfigHistory(places.config_history)
        self._drafts: list[_Draft] = []
        self._sent: list[_Draft] = []
        self._unentered: list[_Draft] = []
        self._known = stored.newest
        self._listeners: list[Listener] = []
        self._replies: dict[tuple[str, str], KeyedReply] = {}
        self._doubtful: dict[tuple[str, str], errors.OutcomeUnknownError] = {}
        limits = settings.CHANGE_REPLIES_MAX, settings.CHANGE_REPLIES_BYTES_MAX
        for reply in config_files.last_replies(places.config_history, *limits):
            self._keep_reply(reply)
        self.is_whole_due = False
        """Whether the log has changes that ``config.data`` lacks: a full disk has refused it."""

        if stored.changes or self.quarantined:
            self._make(stored.changes, entered)
            self._write_first_whole()
        self.lost = max(0, entered - self.snapshot.serial_no)
        """How many changes of the history ``config.data`` lacks: an old copy was put back."""

        if self.lost:
            self._go_on_behind(entered, now)
        config_log.retire_former(places.config)
        self._index = Index(self.snapshot)

    def _write_first_whole(self) -> None:
        try:
            self._history.settle()
            config_files.write(self._places.config, self.snapshot.to_document())
        except errors.StorageError as error:
            # What cannot be read is put right before anything builds on it.
            if self.quarantined or not reserve.is_full(error):
                raise
            self.is_whole_due = True

    def when_changed(self, listener: Listener) -> None:
        """Call ``listener`` after each durable change: states before and after, and the changes."""
        self._listeners.append(listener)

    def close(self) -> None:
        """The whole that a thread writes now is finished; none is begun later.

        A successor must not find its newer ``config.data`` replaced by ours.
        """
        with self._fence:
            self._is_closed = True

    def in_use(self, what: str, scope: str = "") -> Container[object]:
        """The values of this kind that objects have, drafted changes included (`integrity`)."""
        return self._index.claimed(what, scope)

    def provided(self, what: str) -> Container[object]:
        """As `in_use`, for what several objects may have."""
        return self._index.provided(what)

    @property
    def drafted(self) -> Configuration:
        """The snapshot after all drafted changes, which no reply may show yet."""
        newest = self._drafts or self._sent
        return newest[-1].after if newest else self.snapshot

    def draft(self, edit: Edit, now: float) -> Configuration:
        """Make the changes, all or none, on top of those drafted before; `next_batch` takes them.

        The snapshot after them. Raises `StaleSerialError`, `UnknownObjectError` or
        `IntegrityError`: what was drafted before stays.
        """
        before, changes = self.drafted, edit.changes
        after = before.changed(changes, now)
        self._index.accept(before, after, changes)
        objects = [(change.kind.value, change.uuid, _stored(after, change)) for change in changes]
        reply = None if edit.reply_of is None else msgspec.to_builtins(edit.reply_of(after))
        given = edit.answer, edit.request, edit.digest, reply
        record = ConfigChanged(after.serial_no, now, edit.who, edit.why, objects, *given)
        self._drafts.append(_Draft(before, after, changes, record))
        return after

    @property
    def is_storing(self) -> bool:
        """Whether a batch is on its way to the log."""
        return bool(self._sent)

    def next_batch(self) -> Batch | None:
        """All drafted changes, for the log; None: there is none. `stored` or `refused` follows."""
        assert not self._sent, "one batch is on its way at a time"
        self._sent, self._drafts = self._drafts, []
        if not self._sent:
            return None
        changes = [encoded(draft.record) for draft in self._sent]
        return Batch(self._sent[0].before.serial_no, self._known, changes)

    def refused(self, error: errors.GangerError) -> None:
        """The log has not taken the batch: none of its changes is made, nor any that builds on it.

        `OutcomeUnknownError`: a loss of power may bring them back; until `settled`, `check_doubt`
        says so.
        """
        sent, drafts = self._sent, self._drafts
        self._sent, self._drafts = [], []
        for draft in reversed([*sent, *drafts]):
            self._index.take_back(draft.before, draft.after, draft.changes)
        if isinstance(error, errors.OutcomeUnknownError):
            keys = [_key_of(draft.record.who, draft.record.request) for draft in sent]
            self._doubtful = dict.fromkeys(keys, error.under_key())

    def settled(self) -> None:
        """No loss of power can bring back any more what the log has refused."""
        self._doubtful.clear()

    def stored(self) -> None:
        """The batch is durable: its changes are visible from now on. `enter` follows."""
        drafts, self._sent = self._sent, []
        self._doubtful.clear()
        self.snapshot = drafts[-1].after
        self._known = self.snapshot.serial_no
        for draft in drafts:
            for listener in self._listeners:
                listener(draft.before, draft.after, draft.changes)
            self._note_reply(draft.record)
        self._unentered += drafts

    def enter(self) -> None:
        """Write the entries of what is stored into the history; whoever made it need not wait.

        If the disk refuses them they are written later, and a start finds the changes in the log.
        """
        drafts, self._unentered = self._unentered, []
        if not drafts:
            return
        for draft in drafts:
            self._enter(draft.before, draft.after, draft.record)
        with contextlib.suppress(errors.StorageError):
            self._history.write()

    # ------------------------------------------------------------ the whole

    def prepare_whole(self) -> Callable[[], int]:
        """Writes the whole, in any thread; returns its serial number, 0 if it is not wanted.

        `StorageError`.
        """
        self.enter()
        self._history.write()
        document, path = self.snapshot.to_document(), self._places.config
        serial = self.snapshot.serial_no

        def work() -> int:
            with self._fence:
                if self._is_closed:
                    return 0
                if job_files.folder_inode(os.fspath(path.parent)) != self._folder:
                    raise errors.StorageError(f"{path.parent}: it was deleted or replaced")
                # It holds what the log forgets.
                self._history.settle()
                config_files.write(path, document)
                return serial

        return work

    # ------------------------------------------------------------ history

    def history(self, count: int, before: int | None = None) -> list[HistoryEntry]:
        """The newest entries older than the serial ``before``, newest first."""
        found: list[HistoryEntry] = []
        for entry in self._entries():
            if len(found) == count:
                break
            if before is None or entry.serial < before:
                found.append(entry)
                before = entry.serial
        return found

    def find_answer(self, job_id: int, op_index: int, since: int) -> OpcodeAnswer | None:
        """The answer of this opcode of the job, if it made a change newer than that serial."""
        for entry in self._entries():
            if entry.serial <= since:
                break
            answer = entry.answer
            if answer is not None and (answer.job_id, answer.op_index) == (job_id, op_index):
                return answer
        return None

    def _entries(self) -> Iterator[HistoryEntry]:
        self.enter()
        return filter(None, map(_entry, self._history.lines()))

    def reply_to(self, who: str, request: str) -> KeyedReply | None:
        """The reply to the request of this key, if its changes are drafted or stored.

        Knows the newest `settings.CHANGE_REPLIES_MAX`.
        """
        key = _key_of(who, request)
        for draft in reversed([*self._sent, *self._drafts]):
            if _key_of(draft.record.who, draft.record.request) == key:
                return msgspec.convert(draft.record, KeyedReply, from_attributes=True)
        return self._replies.get(key)

    def check_doubt(self, who: str, request: str) -> None:
        """Raise `OutcomeUnknownError` if a loss of power may bring back a change under this key."""
        if (error := self._doubtful.get(_key_of(who, request))) is not None:
            raise error

    def _note_reply(self, record: ConfigChanged) -> None:
        if record.digest:
            self._keep_reply(msgspec.convert(record, KeyedReply, from_attributes=True))

    def _keep_reply(self, reply: KeyedReply) -> None:
        self._replies[_key_of(reply.who, reply.request)] = reply
        if len(self._replies) > settings.CHANGE_REPLIES_MAX:
            del self._replies[next(iter(self._replies))]

    def _enter(self, before: Configuration, after: Configuration, record: ConfigChanged) -> None:
        objects = [(ObjectKind(container), uuid) for container, uuid, _ in record.objects]
        found = differences_of(before, after, objects)
        changed = [(one.path, one.before, one.after) for one in found]
        entry = HistoryEntry(
            record.serial,
            record.time,
            record.who,
            record.why,
            changed,
            record.answer,
            record.request,
            record.digest,
            record.reply,
        )
        self._history.add(msgspec.json.encode(entry))

    def _make(self, newer: Sequence[ConfigChanged], entered: int) -> None:
        """Make the changes of the log, and enter them: the history was not flushed since.

        ``entered``: the newest entry. If the log ends before it, changes are lost, and the history
        alone tells of them.
        """
        if newer and entered <= newer[-1].serial:
            self._history.cut(self.snapshot.serial_no)
            entered = 0
        for record in newer:
            before, document = self.snapshot, self.snapshot.to_document()
            config_files.apply(document, record)
            self.snapshot = Configuration.load(document)
            self._note_reply(record)
            if record.serial > entered:
                self._enter(before, self.snapshot, record)
        self._history.write()

    def _go_on_behind(self, entered: int, now: float) -> None:
        """Take a serial number that no change has had, and say in the history what happened."""
        document = self.snapshot.to_document()
        why = f"config.data ends at serial number {self.snapshot.serial_no}: newer changes are lost"
        document["serial_no"] = entered + 1
        self.snapshot = Configuration.load(document)
        config_files.write(self._places.config, document)
        entry = HistoryEntry(entered + 1, now, "a start of the daemon", why, [])
        self._history.add(msgspec.json.encode(entry))
        self._history.write()


def _quarantined(places: Places, stored: config_files.Stored) -> list[str]:
    """Keep what the first write of the whole would delete; a sentence about each file."""
    found = segments.keep_copies(stored.damaged, places.quarantine)
    if stored.problem:
        where = f"its copy {config_files.copy_path(places.config).name} is used"
        if os.path.lexists(places.config):
            where += f"; the file is now {quarantine.move(places.quarantine, places.config)}"
        found.append(f"{stored.problem}; {where}")
    return found


def _gone(places: Places) -> str:
    history = places.config_history.name
    return (
        f"{places.config}: there is none, but {history} has changes of it; put a copy of the file "
        "back"
    )


def _stored(after: Configuration, change: Change) -> Any:  # noqa: ANN401 - decoded JSON
    return None if change.object is None else after.get(change.kind, change.uuid)


def _key_of(who: str, request: str) -> tuple[str, str]:
    """The key of a user's request; each client of the user has a process, or an address."""
    return who.partition(", pid ")[0].partition(" at ")[0], request


def _entry(line: bytes) -> HistoryEntry | None:
    try:
        return msgspec.json.decode(line, type=HistoryEntry)
    except msgspec.DecodeError:
        # A loss of power may have torn it.
        return None
