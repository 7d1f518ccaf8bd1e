"""However writers of the configuration take turns, no update that was acknowledged is lost.

Some hold the configuration lock and write the whole, some compare and set one object by its serial
number, some use WConfD's short modifications. The store and the lock manager fail in between.
"""

# ruff: noqa: FBT003 - arguments of Ganeti's methods have no names

from __future__ import annotations

import copy
import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.actors.config.store_and_locks import StoreAndLocks
from tests.actors.ganeti.wconfd_calls import call
from tests.actors.runtime.stage import Asker, Stage
from tests.clusters import uuid_of

from ganger.storage import config_files
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.locks.locks import Owner
from ganger.transport import messages
from ganger.transport.messages import ConfigAnswered, Failure, Message, ObjectChange, ObjectsChanged

EXAMPLES = int(os.environ.get("GANGER_EXAMPLES", "100"))
pytestmark = pytest.mark.timeout(600 + EXAMPLES)

NODES = [uuid_of("nodes", number) for number in range(2)]
nodes = st.sampled_from(NODES)
writers = st.integers(0, 1)
Whole = dict[str, Any]


class Update:
    """Somebody adds a tag of his own to a node, which no one else removes."""

    def __init__(self, node: str, tag: str, asker: Asker) -> None:
        self.node = node
        self.tag = tag
        self.asker = asker

    @property
    def outcome(self) -> bool | None:
        """Whether it was made; None: nobody knows, because no reply has come."""
        if not self.asker.answers:
            return None
        match self.asker.answer:
            case Failure():
                return False
            case ConfigAnswered(value=False):
                return False
            case ConfigAnswered(value=None) if self.tag.startswith("short"):
                return False
            case ConfigAnswered() | ObjectsChanged():
                return True
        raise AssertionError(self.asker.answer)


class Writers(RuleBasedStateMachine):
    """Two writers with locks, and any number without."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="writers-"))
        self.both = StoreAndLocks(Stage(self.folder))
        self.owners = [self.both.locks.owner(number) for number in (1, 2)]
        self.wholes: list[Whole | None] = [None, None]
        self.olds: list[Whole | None] = [None, None]
        self.read: dict[str, dict[str, Any]] = {}
        self.updates: list[Update] = []
        self.numbers = itertools.count(1)

    # ------------------------------------------------------------ with the lock

    @rule(writer=writers)
    def lock(self, writer: int) -> None:
        if self.wholes[writer] is not None:
            return
        asker = self.both.ask(call("lockConfig", self.owners[writer], False))
        if asker.answers and isinstance(asker.answer, ConfigAnswered):
            self.wholes[writer] = copy.deepcopy(asker.answer.value)

    @rule(writer=writers, node=nodes, unlocks=st.booleans())
    def write(self, writer: int, node: str, *, unlocks: bool) -> None:
        whole = self.wholes[writer]
        if whole is None:
            return
        tag = f"whole-{next(self.numbers)}"
        whole["nodes"][node]["tags"].append(tag)
        method = "writeConfigAndUnlock" if unlocks else "writeConfig"
        self.update(node, tag, call(method, self.owners[writer], copy.deepcopy(whole)))
        self.both.settle()
        if unlocks:
            self.wholes[writer] = None

    @rule(writer=writers)
    def unlock(self, writer: int) -> None:
        self.both.ask(call("unlockConfig", self.owners[writer]))
        self.olds[writer] = self.wholes[writer] or self.olds[writer]
        self.wholes[writer] = None

    @rule(writer=writers, node=nodes)
    def write_without_lock(self, writer: int, node: str) -> None:
        """It has given the lock back, and writes what it has read all the same."""
        whole = copy.deepcopy(self.olds[writer])
        if whole is not None and self.wholes[writer] is None:
            tag = f"old-{next(self.numbers)}"
            whole["nodes"][node]["tags"].append(tag)
            self.update(node, tag, call("writeConfig", self.owners[writer], whole))
            self.both.settle()

    # ------------------------------------------------------------ without

    def look(self, node: str) -> None:
        asked = messages.ReadObjects(ObjectKind.NODE, [node])
        [found] = self.both.say(asked).answer_as(messages.ObjectsRead).objects
        self.read[node] = copy.deepcopy(found)

    @rule(node=nodes, is_short=st.booleans(), looks=st.booleans(), settles=st.booleans())
    def compare_and_set(self, node: str, *, is_short: bool, looks: bool, settles: bool) -> None:
        """What was read may be old by now."""
        if looks or node not in self.read:
            self.look(node)
        tag = f"{'short' if is_short else 'set'}-{next(self.numbers)}"
        found = copy.deepcopy(self.read[node])
        found["tags"].append(tag)
        if is_short:
            self.update(node, tag, call("updateNode", found))
        else:
            self.update(node, tag, self.changing(found))
        if settles:
            self.both.settle()

    def changing(self, found: dict[str, Any]) -> messages.ChangeObjects:
        """As read, but for what the writer changes."""
        node = found["uuid"]
        change = ObjectChange(
            kind=ObjectKind.NODE, uuid=node, object=found, serial_no=found["serial_no"]
        )
        return messages.ChangeObjects([change])

    @rule(value=st.booleans(), node=nodes)
    def set_value(self, node: str, *, value: bool) -> None:
        """Another field of the same object."""
        self.both.say(messages.SetValues(ObjectKind.NODE, node, [(["powered"], value)]))

    def update(self, node: str, tag: str, message: Message) -> None:
        self.updates.append(Update(node, tag, self.both.say(message)))

    # ------------------------------------------------------------ time, and failures

    @rule()
    def settle(self) -> None:
        self.both.settle()

    @rule()
    def crash_store(self) -> None:
        """Requests on their way are lost; the owners keep the lock."""
        self.both.stage.requests.clear()
        self.both.restart_store()

    @rule()
    def crash_lock_manager(self) -> None:
        self.both.restart_locks()

    @rule(writer=writers)
    def die(self, writer: int) -> None:
        """A process with the lock ends; another one begins."""
        owner = self.owners[writer]
        self.both.locks.kill(owner)
        self.both.locks.actor.turn(messages.OwnerEnded(lock_file=owner.lock_file))
        self.both.store.handle_mail()
        self.owners[writer] = self.new_owner()
        self.wholes[writer] = None

    def new_owner(self) -> Owner:
        return self.both.locks.owner(100 + next(self.numbers))

    # ------------------------------------------------------------ what must hold

    def teardown(self) -> None:
        if not hasattr(self, "both"):
            return
        for writer in (0, 1):
            self.unlock(writer)
        self.both.settle()
        stored = config_files.read(self.both.stage.places.config)
        assert stored is not None
        for update in self.updates:
            is_there = update.tag in stored["nodes"][update.node]["tags"]
            assert update.outcome in (is_there, None), (update.tag, is_there, update.asker.answers)
        for held in list(self.both.locks.held.values()):
            held.remove()
        shutil.rmtree(self.folder)


def test_no_acknowledged_update_is_lost() -> None:
    run_state_machine_as_test(
        Writers, settings=settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
    )
