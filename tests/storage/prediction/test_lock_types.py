"""The document's table of costs, weights, ageing, certainty, and what merging keeps."""

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.prediction.levels import uncovered

from ganger.storage import errors
from ganger.storage.prediction import lock_types
from ganger.storage.prediction.lock_types import (
    ALL_EXCLUSIVE,
    ALL_SHARED,
    NO_LOCKS,
    NOTHING,
    UNKNOWN,
    UNKNOWN_EXCLUSIVE,
    UNKNOWN_SHARED,
    Costs,
    LevelForecast,
    LockForecast,
    LockType,
    adjusted_weight,
    cost,
    exclusive,
    forecast_of,
    forecast_of_locks,
    is_certain_to_block,
    merged,
    shared,
    static_weight,
)

# The table as the document prints it. `a/b`: the first if both name a lock in common.
TABLE = """
               None  Shared   UnkShared  AllShared  Excl     UnkExcl  AllExcl
    None       0     0        0          0          0        0        0
    Shared     0.3   0        0          0          3/0.3    1.5      3
    UnkShared  0.3   0.3      0.3        0.3        1.5      1.5      3
    AllShared  0.3   0.3      0.3        0.3        3        3        3
    Excl       0.5   3/0.5    1.5        3          3/0.5    1.5      3
    UnkExcl    0.5   1.5      1.5        3          1.5      1.5      3
    AllExcl    0.5   3        3          3          3        3        3
"""
SHAPES: dict[str, Callable[[str], LevelForecast]] = {
    "None": lambda _name: NOTHING,
    "Shared": lambda name: shared(["both", name]) if name else shared(["both"]),
    "UnkShared": lambda _name: UNKNOWN_SHARED,
    "AllShared": lambda _name: ALL_SHARED,
    "Excl": lambda name: exclusive(["both", name]) if name else exclusive(["both"]),
    "UnkExcl": lambda _name: UNKNOWN_EXCLUSIVE,
    "AllExcl": lambda _name: ALL_EXCLUSIVE,
}
APART: dict[str, Callable[[str], LevelForecast]] = {
    **SHAPES,
    "Shared": lambda name: shared([f"own {name}", f"other {name}"]),
    "Excl": lambda name: exclusive([f"own {name}"]),
}


def cells() -> list[tuple[str, str, float, float]]:
    found = []
    header, *rows = (line.split() for line in TABLE.split("\n") if line.strip())
    for row in rows:
        for column, cell in zip(header, row[1:], strict=True):
            overlapping, _, apart = cell.partition("/")
            found.append((row[0], column, float(overlapping), float(apart or overlapping)))
    return found


def test_the_printed_table_has_all_49_cells() -> None:
    assert len({(row, column) for row, column, _, _ in cells()}) == 49
    assert len(LockType) == 7


@pytest.mark.parametrize(("row", "column", "overlapping", "apart"), cells())
def test_each_cell_of_the_documents_table_with_and_without_overlap(
    row: str, column: str, overlapping: float, apart: float
) -> None:
    assert cost(SHAPES[row](""), SHAPES[column]("")) == overlapping
    assert cost(SHAPES[row]("left"), SHAPES[column]("right")) == overlapping
    assert cost(APART[row]("left"), APART[column]("right")) == apart


def test_the_page_shows_the_same_table() -> None:
    page = (Path(__file__).parents[3] / "docs/lock-forecasts.md").read_text(encoding="utf-8")
    expected = [
        [number.replace("/", " or ") for number in line.split()[1:]]
        for line in TABLE.strip().splitlines()[1:]
    ]
    kinds = [kind.value.replace("_", " ") for kind in LockType]
    shown = [re.search(rf"^\| {kind} \| (.*) \|$", page, re.MULTILINE) for kind in kinds]
    assert [row[1].split(" | ") for row in shown if row is not None] == expected


def test_the_constants_are_parameters() -> None:
    costs = Costs(free=1, spare_shared=2, spare_exclusive=3, may_block=4, blocks=5)
    assert cost(shared(["a"]), shared(["a"]), costs) == 1
    assert cost(shared(["a"]), NOTHING, costs) == 2
    assert cost(exclusive(["a"]), shared(["b"]), costs) == 3
    assert cost(exclusive(["a"]), UNKNOWN_SHARED, costs) == 4
    assert cost(exclusive(["a"]), ALL_SHARED, costs) == 5
    pending, big = forecast_of(node=exclusive(["a"])), LockForecast(big_lock="exclusive")
    assert static_weight(pending, [NO_LOCKS], base=10, costs=costs) == 10 + 3 + 4 * 1
    assert static_weight(big, [NO_LOCKS], base=10, costs=costs) == 10 + 5 * 5


def test_a_level_with_both_modes_costs_what_its_worse_part_costs() -> None:
    both = exclusive(["x"], ["s"])
    assert cost(both, shared(["s"])) == 0.5
    assert cost(both, shared(["x"])) == 3
    assert cost(both, exclusive(["s"])) == 3
    assert cost(shared(["s"]), both) == 0.3
    assert cost(shared(["x"]), both) == 3
    assert cost(exclusive(["s"]), both) == 3
    assert cost(exclusive(["other"]), both) == 0.5


def test_a_weight_is_the_base_and_the_worst_of_each_level() -> None:
    pending = forecast_of(node=exclusive(["n1"]), instance=shared(["i1"]))
    on_the_node, elsewhere = forecast_of(node=shared(["n1"])), forecast_of(node=shared(["n2"]))
    assert static_weight(pending, [elsewhere]) == pytest.approx(1 + 0.5 + 0.3)
    assert static_weight(pending, [elsewhere, on_the_node]) == pytest.approx(1 + 3 + 0.3)
    both = [on_the_node, forecast_of(instance=ALL_EXCLUSIVE)]
    assert static_weight(pending, iter(both)) == 1 + 3 + 3


def test_nothing_weighs_anything_while_nothing_runs() -> None:
    big = LockForecast(big_lock="exclusive")
    assert [static_weight(pending, []) for pending in (NO_LOCKS, UNKNOWN, big)] == [0, 0, 0]


def test_jobs_without_locks_weigh_the_base() -> None:
    assert static_weight(NO_LOCKS, [UNKNOWN, LockForecast(big_lock="exclusive")]) == 1


def test_a_job_that_needs_the_big_lock_weighs_16() -> None:
    assert static_weight(LockForecast(big_lock="exclusive"), [NO_LOCKS]) == 16


def test_beside_an_owner_of_the_big_lock_every_level_blocks() -> None:
    running = [LockForecast(big_lock="exclusive")]
    pending = forecast_of(node=shared(["n1"]), network=UNKNOWN_EXCLUSIVE)
    assert static_weight(pending, running) == 1 + 3 + 3


def test_a_weight_falls_evenly_to_0_within_900_seconds() -> None:
    weights = [adjusted_weight(16, age) for age in (0, 225, 450, 899, 900, 901, 10**9)]
    assert weights[:3] == [16, 12, 8]
    assert 0 < weights[3] < 0.02
    assert weights[4:] == [0, 0, 0]


def test_the_tick_and_the_coefficient_are_parameters() -> None:
    assert adjusted_weight(8, 5, tick_seconds=2, ticks=10) == 6
    assert adjusted_weight(8, 20, tick_seconds=2, ticks=10) == 0


def test_a_job_from_the_future_has_age_0_and_one_without_time_weighs_nothing() -> None:
    assert adjusted_weight(8, -3600) == 8
    assert adjusted_weight(8, float("inf")) == 0


@given(
    weight=st.floats(0, 100),
    ages=st.tuples(st.floats(-10, 1e6), st.floats(-10, 1e6)),
    tick=st.floats(0.001, 1e4),
    ticks=st.floats(0.001, 1e4),
)
def test_weights_never_grow_with_age_and_end_at_0(
    weight: float, ages: tuple[float, float], tick: float, ticks: float
) -> None:
    young, old = sorted(ages)
    assert adjusted_weight(weight, old, tick, ticks) >= 0
    assert adjusted_weight(weight, old, tick, ticks) <= adjusted_weight(weight, young, tick, ticks)
    assert adjusted_weight(weight, tick * ticks * 1.000001, tick, ticks) == 0


NAMES = st.frozensets(st.sampled_from("abcd"), min_size=1, max_size=3)
NAMED_LEVELS = st.one_of(
    st.just(NOTHING),
    NAMES.map(shared),
    st.tuples(NAMES, st.frozensets(st.sampled_from("abcd"))).map(lambda both: exclusive(*both)),
    st.sampled_from([ALL_SHARED, ALL_EXCLUSIVE]),
)
LEVELS = NAMED_LEVELS | st.sampled_from([UNKNOWN_SHARED, UNKNOWN_EXCLUSIVE])
BIG_LOCKS = st.sampled_from(["none", "shared", "exclusive"])


def forecasts(levels: st.SearchStrategy[LevelForecast]) -> st.SearchStrategy[LockForecast]:
    return st.builds(LockForecast, levels, levels, levels, levels, levels, big_lock=BIG_LOCKS)


def conflict(one: LevelForecast, other: LevelForecast) -> bool:
    """Whether two levels without unknown names conflict: lock by lock, as the manager decides."""
    for name, mine, theirs in itertools.product("abcd", (0, 1), (0, 1)):
        if (
            (mine or theirs)
            and name in taken(one, alone=bool(mine))
            and name in taken(other, alone=bool(theirs))
        ):
            return True
    return False


def taken(level: LevelForecast, *, alone: bool) -> Sequence[str]:
    if level.type in {LockType.ALL_SHARED, LockType.ALL_EXCLUSIVE}:
        return "abcd" if (level.type is LockType.ALL_EXCLUSIVE) == alone else ""
    if (level.type is LockType.EXCLUSIVE) == alone:
        return level.names
    return () if alone else level.also_shared


@settings(max_examples=40)
@given(forecasts(NAMED_LEVELS), forecasts(NAMED_LEVELS))
def test_a_job_is_certain_to_block_where_its_locks_conflict_with_held_ones(
    pending: LockForecast, held: LockForecast
) -> None:
    modes = {pending.big_lock, held.big_lock}
    expected = ("exclusive" in modes and "none" not in modes) or any(
        conflict(getattr(pending, level), getattr(held, level)) for level in lock_types.LEVELS
    )
    assert is_certain_to_block(pending, held) == expected


@given(LEVELS, LEVELS)
def test_names_that_are_not_known_never_block_for_certain(
    pending: LevelForecast, held: LevelForecast
) -> None:
    if "unknown" in pending.type or "unknown" in held.type:
        assert not is_certain_to_block(forecast_of(node=pending), forecast_of(node=held))


@given(LEVELS, LEVELS)
def test_what_blocks_for_certain_costs_most(pending: LevelForecast, held: LevelForecast) -> None:
    if is_certain_to_block(forecast_of(node=pending), forecast_of(node=held)):
        assert cost(pending, held) == 3


@given(LEVELS)
def test_a_free_level_never_blocks(level: LevelForecast) -> None:
    assert not is_certain_to_block(forecast_of(node=level), forecast_of(network=ALL_EXCLUSIVE))
    assert cost(NOTHING, level) == 0


@settings(max_examples=40)
@given(st.lists(forecasts(LEVELS), max_size=4))
def test_a_merged_forecast_takes_what_each_of_them_takes(several: list[LockForecast]) -> None:
    whole = merged(several)
    assert [uncovered(whole, one) for one in several if uncovered(whole, one)] == []


@settings(max_examples=40)
@given(st.lists(forecasts(LEVELS), max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_opcodes_does_not_change_what_they_take_together(
    several: list[LockForecast], chance: Random
) -> None:
    mixed = [*several, *several[:1]]
    chance.shuffle(mixed)
    assert merged(mixed) == merged(several)


def test_merging_joins_names_and_never_weakens_a_mode() -> None:
    one, other = forecast_of(node=shared(["a"])), forecast_of(node=exclusive(["b"]))
    assert merged([one, other]).node == exclusive(["b"], ["a"])
    assert merged([one, forecast_of(node=exclusive(["a"]))]).node == exclusive(["a"])
    assert merged([other, forecast_of(node=ALL_SHARED)]).node == UNKNOWN_EXCLUSIVE
    assert merged([]) == NO_LOCKS
    for weaker, stronger in itertools.combinations([UNKNOWN_SHARED, ALL_SHARED], 2):
        both = [forecast_of(node=weaker), forecast_of(node=stronger)]
        assert merged(both) == forecast_of(node=stronger)
    both = [forecast_of(node=UNKNOWN_EXCLUSIVE), forecast_of(node=ALL_EXCLUSIVE)]
    assert merged(both) == forecast_of(node=ALL_EXCLUSIVE)


def test_locks_by_their_names_on_the_wire_become_a_forecast() -> None:
    found = forecast_of_locks(
        [
            ("cluster/BGL", "shared"),
            ("instance/web", "exclusive"),
            ("nodegroup/[lockset]", "shared"),
            ("node/n2", "exclusive"),
            ("node/n1", "shared"),
            ("node-res/[lockset]", "exclusive"),
            ("network/w", "release"),
            ("cluster/config", "exclusive"),
        ]
    )
    assert found == forecast_of(
        instance=exclusive(["web"]),
        nodegroup=ALL_SHARED,
        node=exclusive(["n2"], ["n1"]),
        node_res=ALL_EXCLUSIVE,
    )


def test_an_owner_of_the_big_lock_or_its_lock_set_keeps_all_others_out() -> None:
    assert forecast_of_locks([("cluster/BGL", "exclusive")]).big_lock == "exclusive"
    assert forecast_of_locks([("cluster/[lockset]", "exclusive")]).big_lock == "exclusive"
    assert forecast_of_locks([]) == NO_LOCKS


def test_a_whole_level_shared_and_one_lock_alone_is_never_called_certain() -> None:
    taken = [("node/[lockset]", "shared"), ("node/n1", "exclusive")]
    assert forecast_of_locks(taken).node == UNKNOWN_EXCLUSIVE


def test_a_lock_without_a_proper_name_is_refused() -> None:
    with pytest.raises(errors.LockRequestError, match="planet/mars"):
        forecast_of_locks([("planet/mars", "shared")])


def test_forecasts_are_small_plain_values_that_compare_and_hash() -> None:
    found = forecast_of(node=exclusive(["n1"]), network=ALL_SHARED)
    assert msgspec.to_builtins(found) == {
        "node": {"type": "exclusive", "names": ("n1",)},
        "network": {"type": "all_shared"},
        "big_lock": "shared",
    }
    assert msgspec.convert(msgspec.to_builtins(found), LockForecast) == found
    assert hash(found) == hash(forecast_of(node=exclusive(["n1"]), network=ALL_SHARED))
    assert msgspec.json.encode(NO_LOCKS) == b"{}"
    assert LevelForecast() == NOTHING
