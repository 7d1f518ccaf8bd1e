"""Clients that submit at the same time, each on a thread of its own, while parts are killed."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import traceback
from collections import deque
from typing import TYPE_CHECKING, Self

from tests.torture.kills import workload

from ganger import GangerError
from ganger.storage import errors

if TYPE_CHECKING:
    from tests.faults.harness import Daemon
    from tests.torture.kills.workload import Book, Submission, Work

    from ganger import Client

SUBMITTERS = 3
PENDING_MAX = 6
"""Jobs of one submitter that have not ended, above which it waits for the oldest."""

PATIENT_SECONDS = 60.0
PURGE_CHANCE = 0.4
IMPATIENT_SECONDS = 0.3
ATTEMPTS_MAX = 200


class Load:
    """Submitters that go on until the test stops them.

    Most repeat a submission, with the same key, until they have an answer; some give up.
    """

    def __init__(
        self, daemon: Daemon, work: Work, book: Book, seed: str, count: int = SUBMITTERS
    ) -> None:
        self._daemon = daemon
        self._work = work
        self._book = book
        self._earlier = book.known()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._run, args=[random.Random(f"{seed} submitter {number}")], daemon=True
            )
            for number in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let every submitter finish what it is at; there must be a daemon."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * PATIENT_SECONDS)
            if thread.is_alive():
                self._book.fail(f"a submitter hangs: {_place_of(thread)}")

    def _run(self, dice: random.Random) -> None:
        pending: deque[int] = deque()
        try:
            with self._daemon.client() as client:
                while not self._over.is_set():
                    submission = self._work.draw(dice)
                    self._book.begin(submission)
                    ids = self._submit(client, submission, is_patient=dice.random() < 0.9)
                    if ids:
                        self._book.acknowledge(submission, ids)
                    pending += ids
                    while len(pending) > PENDING_MAX:
                        oldest = pending.popleft()
                        client.wait(oldest, timeout=PATIENT_SECONDS, fields=("status",))
                        if dice.random() < PURGE_CHANCE:
                            self._purge(client, oldest, is_archived=dice.random() < 0.5)
                    if self._earlier and dice.random() < PURGE_CHANCE:
                        # The judge is through with it, and has it archived.
                        self._purge(client, dice.choice(self._earlier), is_archived=False)
        except Exception as error:  # noqa: BLE001 - the judge tells it
            self._book.fail(f"a submitter ended: {workload.tell_error(error)}")

    def _purge(self, client: Client, job_id: int, *, is_archived: bool) -> None:
        """Purge an ended job, archived or not; who gets no answer does not ask again."""
        with contextlib.suppress(errors.TryAgainError):
            if is_archived:
                # Of a repeated request the first copy may have done it.
                with contextlib.suppress(errors.ArchivedJobError):
                    client.archive(job_id, timeout=PATIENT_SECONDS)
            self._book.purge(job_id)
            # If another one depends on it, or its process is about to leave, it stays.
            if job_id in client.purge([job_id], timeout=PATIENT_SECONDS).jobs:
                self._book.purged(job_id)

    def _submit(self, client: Client, submission: Submission, *, is_patient: bool) -> list[int]:
        """The ids that were acknowledged; none if this client has given up."""
        failure: GangerError | None = None
        for _ in range(ATTEMPTS_MAX if is_patient else 1):
            try:
                return client.submit_many(
                    submission.jobs,
                    key=submission.key,
                    reason=submission.key,
                    timeout=PATIENT_SECONDS if is_patient else IMPATIENT_SECONDS,
                )
            except errors.TryAgainError as error:
                failure = error
        if is_patient and failure is not None:
            raise failure
        return []


def _place_of(thread: threading.Thread) -> str:
    """Where the thread is, the outermost call first."""
    frame = sys._current_frames().get(thread.ident or 0)
    found = traceback.extract_stack(frame) if frame is not None else []
    return " > ".join(f"{one.name}:{one.lineno}" for one in found)
