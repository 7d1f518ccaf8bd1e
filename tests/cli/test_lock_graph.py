"""Who waits for whom: the arrows, the tree, DOT."""

from __future__ import annotations

from ganger.cli import lock_graph
from ganger.cli.lock_graph import Arrow
from ganger.storage.locks.locks import LockMode
from ganger.transport.messages import LockRow, LockWait

NODE = "node/a"
SHARED, EXCLUSIVE = LockMode.SHARED, LockMode.EXCLUSIVE


def arrow(owner: str, other: str, why: str = "x") -> Arrow:
    return Arrow(owner, other, why, is_held=True)


def test_arrows_come_from_holders_from_the_line_and_from_dependencies() -> None:
    waits = [LockWait("5", NODE, EXCLUSIVE, [("3", SHARED)], ["4"])]
    rows = [
        LockRow(name=NODE, mode="shared", owners=["3"], pending=[("exclusive", ["5"])]),
        LockRow(name="job/5", mode=None, owners=[], pending=[("success", ["job/6", "job/7"])]),
    ]
    assert lock_graph.arrows(waits, rows) == [
        Arrow("job 5", "job 3", "node/a (exclusive), held shared", is_held=True),
        Arrow("job 5", "job 4", "node/a (exclusive), wanted before", is_held=False),
        Arrow("job 6", "job 5", "its end (dependency)", is_held=True),
        Arrow("job 7", "job 5", "its end (dependency)", is_held=True),
    ]


def test_below_each_owner_stand_those_that_wait_for_it() -> None:
    found = [arrow("b", "a"), arrow("d", "a"), arrow("c", "b"), arrow("e", "d"), arrow("z", "y")]
    assert list(lock_graph.tree(found)) == [
        "a",
        "|- b waits for x",
        "|  `- c waits for x",
        "`- d waits for x",
        "   `- e waits for x",
        "y",
        "`- z waits for x",
    ]


def test_what_waits_below_an_owner_is_shown_once() -> None:
    found = [arrow("c", "a"), arrow("c", "b"), arrow("d", "c")]
    assert list(lock_graph.tree(found)) == [
        "a",
        "`- c waits for x",
        "   `- d waits for x",
        "b",
        "`- c waits for x (see above)",
    ]


def test_a_ring_is_shown_beside_the_others() -> None:
    found = [arrow("b", "a"), arrow("q", "p"), arrow("p", "q")]
    assert list(lock_graph.tree(found)) == [
        "a",
        "`- b waits for x",
        "p",
        "`- q waits for x",
        "   `- p waits for x (see above)",
    ]


def test_a_chain_may_be_long() -> None:
    found = [arrow(str(number + 1), str(number)) for number in range(5_000)]
    assert len(list(lock_graph.tree(found))) == 5_001


def test_dot_quotes_names_and_dashes_what_is_only_before() -> None:
    found = [arrow('say "x"', "b"), Arrow("c", "b", "y", is_held=False)]
    assert list(lock_graph.dot(found)) == [
        "digraph locks {",
        "  rankdir=LR;",
        '  "say \\"x\\"" -> "b" [label="x"];',
        '  "c" -> "b" [label="y", style=dashed];',
        "}",
    ]
