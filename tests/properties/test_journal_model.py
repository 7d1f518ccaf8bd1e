"""The journal against a list of what was acknowledged, on a disk that refuses and tears."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.refusals import filling, refusing

from ganger.storage import errors, settings
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import JobArchived, JobsStored, Record, SegmentBegun, StateStored
from ganger.storage.log.segment_ahead import SegmentAhead

ids = st.integers(1, 10**6)
bodies = st.binary(max_size=60)
stored = st.tuples(ids, st.integers(1, 9), bodies)
records = st.one_of(
    st.lists(stored, max_size=3).map(JobsStored),
    stored.map(lambda job: StateStored(*job)),
    ids.map(JobArchived),
)


class _DiedError(BaseException):
    """The machine stops here."""


class JournalAgainstModel(RuleBasedStateMachine):
    """What was acknowledged comes back, in order; what was refused never does."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.journal = Journal(self.directory)
        self.appended: list[Record] = []
        # By segment, because `cut` drops whole ones; the last one is written.
        self.acknowledged: list[list[Record]] = [[]]
        self.is_open = False
        self.ahead: SegmentAhead | None = None

    def teardown(self) -> None:
        self.journal.close()
        shutil.rmtree(self.directory)

    def replayed(self) -> list[Record]:
        found = Journal(self.directory).replay()
        return [record for record in found if not isinstance(record, SegmentBegun)]

    def expected(self) -> list[Record]:
        return [record for segment in self.acknowledged for record in segment]

    def newest(self) -> Path:
        return Path(self.journal._newest)

    def segment_needed(self) -> None:
        """The next commit goes into a new segment, unless one is open."""
        if not self.is_open:
            self.acknowledged.append([])
            self.is_open = True

    # ------------------------------------------------------------ what the queue does

    @rule(record=records)
    def append(self, record: Record) -> None:
        self.journal.append(record)
        self.appended.append(record)

    @rule()
    def commit(self) -> None:
        self.journal.write(5)
        if self.appended:
            self.segment_needed()
            self.acknowledged[-1] += self.appended
            self.appended.clear()

    @precondition(lambda self: not self.appended)
    @rule()
    def begin(self) -> None:
        self.journal.begin(5)
        self.journal.write(5)
        self.acknowledged.append([])
        self.is_open = True

    @precondition(lambda self: self.is_open)
    @rule()
    def cut(self) -> None:
        # Its job files are durable; here there are none, and the flush would only take time.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ganger.storage.log.cut.flush_file_system", lambda *_: None)
            self.journal.cut()
        del self.acknowledged[:-1]

    @rule()
    def want_the_next_segment(self) -> None:
        self.ahead = self.journal.make_ahead() or self.ahead

    @precondition(lambda self: self.ahead is not None)
    @rule(call=st.sampled_from([None, "open", "pwrite", "fdatasync", "fsync"]))
    def make_it(self, call: str | None) -> None:
        """A thread makes it: now, when it is needed no longer, or in vain."""
        assert self.ahead is not None
        with contextlib.ExitStack() as stack:
            if call is not None:
                stack.enter_context(refusing(call))
                stack.enter_context(contextlib.suppress(errors.StorageError))
            self.ahead.carry_out()
        self.ahead = None

    @rule()
    def give_it_up(self) -> None:
        self.journal.give_up_ahead()

    @rule()
    def restart(self) -> None:
        self.journal.close()
        self.appended.clear()
        self.journal = Journal(self.directory)
        self.is_open = False

    # ------------------------------------------------------------ what the disk does

    @precondition(lambda self: self.appended)
    @rule(
        call=st.sampled_from(["pwrite", "fdatasync", "open", "fsync"]),
        number=st.sampled_from([errno.ENOSPC, errno.EIO]),
    )
    def refuse(self, call: str, number: int) -> None:
        if call in ("open", "fsync") and (self.is_open or self.has_next_segment()):
            return
        with refusing(call, number=number):
            self.commit_in_vain()

    def has_next_segment(self) -> bool:
        ahead = self.journal._ahead
        return ahead is not None and ahead._stage.name == "READY"

    @precondition(lambda self: self.appended and self.is_open)
    @rule(room=st.integers(0, 200))
    def fill_up(self, room: int) -> None:
        with filling(room):
            self.commit_in_vain()

    def commit_in_vain(self) -> None:
        with pytest.raises(errors.StorageError):
            self.journal.write(5)
        assert not self.journal._buffer
        self.appended.clear()
        self.is_open = False

    @precondition(lambda self: self.appended)
    @rule(data=st.data())
    def die_in_a_commit(self, data: st.DataObject) -> None:
        """Of what was on its way, the disk has got a part, or has lost a page of it."""

        def die(_: int) -> None:
            raise _DiedError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fdatasync", die)
            with pytest.raises(_DiedError):
                self.journal.write(5)
        self.segment_needed()
        written = self.newest().read_bytes()
        start = self.journal._size
        end = min(len(written), start + 300)
        kept = data.draw(st.integers(start, end), label="kept")
        lost = written[:kept]
        if data.draw(st.booleans(), label="zeros behind"):
            lost += bytes(len(written) - kept)
        self.newest().write_bytes(lost)
        self.restart_after_death(self.expected(), list(self.appended))

    def restart_after_death(self, before: list[Record], on_its_way: list[Record]) -> None:
        on_its_way = list(on_its_way)
        self.restart()
        found = self.replayed()
        # Neither acknowledged nor refused: the first of them may have arrived.
        assert found[: len(before)] == before
        arrived = found[len(before) :]
        assert arrived == on_its_way[: len(arrived)]
        self.acknowledged[-1] += arrived

    @invariant()
    def exactly_what_was_acknowledged_is_replayed(self) -> None:
        assert self.replayed() == self.expected()


# Room is reserved again and again, so that ends of the reserved room are met.
@pytest.fixture(autouse=True)
def small_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "JOURNAL_RESERVE_BYTES", 100)
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 60)


TestJournal = JournalAgainstModel.TestCase
TestJournal.settings = hypothesis_settings(max_examples=60, stateful_step_count=25)
