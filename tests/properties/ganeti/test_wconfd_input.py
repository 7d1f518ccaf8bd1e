"""Whatever WConfD's methods are given: they refuse it, or the configuration stays whole."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import clusters
from tests.actors.config.store_and_locks import StoreAndLocks
from tests.actors.runtime.stage import Stage
from tests.clusters import uuid_of

from ganger.actors.ganeti import wconfd_methods
from ganger.actors.ganeti.wconfd_table import METHODS, ClientId
from ganger.storage import config_files, errors
from ganger.storage.cluster import shapes
from ganger.storage.cluster.configuration import Configuration
from ganger.storage.cluster.integrity import problems
from ganger.storage.locks.locks import CONFIG_LOCK
from ganger.transport.ganeti.luxi import Call, UnreadableCallError
from ganger.transport.messages import ConfigAnswered, Failure

MADE = clusters.made_configuration(nodes=3, instances=3)
CONTAINERS = ("nodes", "nodegroups", "instances", "networks", "disks")

anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 70_000), st.text("a/:1 .", max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text("ab", max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)
uuids = st.one_of(
    st.sampled_from([uuid for container in CONTAINERS for uuid in MADE[container]]),
    st.text("a/", max_size=2),
)


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """An object of the configuration, in which some values are others."""
    container = draw(st.sampled_from([*CONTAINERS, "cluster"]))
    found = MADE[container]
    if container != "cluster":
        found = found[draw(st.sampled_from(sorted(found)))]
    return damaged(draw, found)


def damaged(draw: st.DrawFn, found: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(found)
    names = [*sorted(found), "odd"]
    changed |= draw(st.dictionaries(st.sampled_from(names), anything, max_size=2))
    for name in draw(st.lists(st.sampled_from(names), max_size=1)):
        changed.pop(name, None)
    return changed


@st.composite
def wholes(draw: st.DrawFn) -> dict[str, Any]:
    """A whole configuration in which an object, or a container, is another one."""
    whole = copy.deepcopy(MADE)
    container = draw(st.sampled_from([*CONTAINERS, "cluster", "filters", "version", "odd"]))
    kept = whole.get(container)
    if container in CONTAINERS and draw(st.booleans()):
        uuid = draw(st.sampled_from(sorted(whole[container])))
        whole[container][uuid] = damaged(draw, whole[container][uuid])
    elif container == "cluster" and draw(st.booleans()):
        whole[container] = damaged(draw, whole[container])
    else:
        whole[container] = draw(st.one_of(anything, st.just(kept)))
    return whole


BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    str: uuids,
    list[str]: st.lists(uuids, max_size=2),
    dict[str, Any]: objects(),
    str | None: st.one_of(st.none(), uuids, st.sampled_from(["up", "down", "admin"])),
    bool | None: st.one_of(st.none(), st.booleans()),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """A method and its arguments, mostly of the right types; None stands for the owner."""
    name = draw(st.sampled_from(sorted(METHODS)))
    given_types = METHODS[name].takes
    args: list[Any] = []
    for kind in given_types:
        if kind is ClientId:
            args.append(None)
        elif name.startswith("writeConfig"):
            args.append(draw(wholes()))
        else:
            args.append(draw(BY_TYPE.get(kind, st.one_of(st.none(), st.integers(-1, 15_000)))))
    return name, args


def play(made: dict[str, Any], steps: list[tuple[str, list[Any]]], *, holds: bool) -> Configuration:
    with tempfile.TemporaryDirectory(prefix="input-") as folder:
        stage = Stage(Path(folder))
        both = StoreAndLocks(stage, made)
        owner = both.locks.owner(1)
        if holds:
            both.locks.take(owner, (CONFIG_LOCK, "exclusive"))
        client = [owner.identifier, owner.lock_file, owner.pid]
        for name, args in steps:
            call = Call(
                name,
                [
                    client if one is None and _is_owner(name, at) else one
                    for at, one in enumerate(args)
                ],
            )
            try:
                prepared = wconfd_methods.prepare(call)
            except errors.GangerError:
                continue
            asker = both.ask(prepared.request)
            both.store.end_turn()
            stage.sent.clear()
            for answer in asker.answers:
                assert isinstance(answer, ConfigAnswered | Failure), answer
                if not isinstance(answer, Failure) and name != "verifyConfig":
                    prepared.result(answer)
        for held in list(both.locks.held.values()):
            held.remove()
        found = config_files.read(stage.places.config)
        both.store.component.close()
        return Configuration.load(found)


def _is_owner(name: str, at: int) -> bool:
    return METHODS[name].takes[at] is ClientId


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(calls(), min_size=1, max_size=8), holds=st.booleans())
def test_no_input_breaks_the_configuration(
    steps: list[tuple[str, list[Any]]], *, holds: bool
) -> None:
    assert problems(play(copy.deepcopy(MADE), steps, holds=holds)) == []


@settings(max_examples=60, deadline=None)
@given(whole=wholes(), steps=st.lists(calls(), min_size=1, max_size=8), holds=st.booleans())
def test_a_damaged_configuration_ends_no_store(
    whole: dict[str, Any], steps: list[tuple[str, list[Any]]], *, holds: bool
) -> None:
    try:
        Configuration.load(copy.deepcopy(whole))
    except errors.DataDirectoryError:
        return
    if shapes.unservable(whole) is not None:
        # No daemon starts with it.
        return
    try:
        play(whole, steps, holds=holds)
    except AssertionError as error:
        # Some damage is named when the daemon starts, which then does not begin.
        if "DataDirectoryError" not in str(error):
            raise


@pytest.mark.parametrize("name", sorted(METHODS))
def test_wrong_numbers_and_types_of_arguments_are_refused(name: str) -> None:
    kinds = METHODS[name].takes
    right = {ClientId: ["x", "/l", 1], bool: True, str: "x", list[str]: [],
             dict[str, Any]: {}}  # fmt: skip
    args = [right.get(kind) for kind in kinds]
    for wrong in (args[:-1], [*args, 1]):
        if len(wrong) != len(kinds):
            with pytest.raises(UnreadableCallError, match=f"expected {len(kinds)} arguments"):
                wconfd_methods.prepare(Call(name, wrong))
    for at in range(len(kinds)):
        with pytest.raises(UnreadableCallError, match=f"argument {at + 1}: "):
            wconfd_methods.prepare(Call(name, [*args[:at], 1.5, *args[at + 1 :]]))


INSTANCE, DISK, NETWORK = (uuid_of(kind, 0) for kind in ("instances", "disks", "networks"))
DAMAGES: list[tuple[list[str], Any, list[tuple[str, list[Any]]]]] = [
    (
        ["instances", INSTANCE, "disks"],
        5,
        [
            ("attachInstanceDisk", [INSTANCE, DISK, None]),
            ("detachInstanceDisk", [INSTANCE, DISK]),
            ("removeInstanceDisk", [uuid_of("instances", 1), DISK]),
        ],
    ),
    (
        ["instances", INSTANCE, "uuid"],
        [5],
        [
            ("attachInstanceDisk", [INSTANCE, DISK, None]),
            ("setInstanceStatus", [INSTANCE, "down", None, None]),
            ("removeInstance", [INSTANCE]),
        ],
    ),
    (
        ["cluster", "tcpudp_port_pool"],
        5,
        [("allocatePort", []), ("addTcpUdpPort", [11_000]), ("removeInstance", [INSTANCE])],
    ),
    (["disks", DISK, "children"], 5, [("computeDRBDMap", [])]),
    (["disks", DISK, "children"], [5], [("computeDRBDMap", [])]),
    (["networks", NETWORK, "reservations"], 5, [("generateIp", [None, NETWORK])]),
    (["cluster", "mac_prefix"], 5, [("generateMAC", [None, None])]),
    (["cluster", "uuid"], 5, [("allocatePort", []), ("prepareClusterDestruction", [None])]),
]
"""Where a value is another one, which one, and methods that look at it."""


@pytest.mark.parametrize(("way", "value", "steps"), DAMAGES)
def test_a_damaged_value_is_named_and_ends_no_store(
    way: list[str], value: Any, steps: list[tuple[str, list[Any]]]
) -> None:
    whole = copy.deepcopy(MADE)
    found = whole
    for name in way[:-1]:
        found = found[name]
    found[way[-1]] = value
    play(whole, steps, holds=False)


def test_the_instance_for_these_tests_is_valid() -> None:
    assert problems(Configuration.load(copy.deepcopy(MADE))) == []
    assert uuid_of("instances", 0) in MADE["instances"]
