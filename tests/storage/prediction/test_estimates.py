from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import errors
from ganger.storage.prediction import estimates
from ganger.storage.prediction.estimates import Estimates, accuracy_of, key_of

KEY = "OP_EXEC make"


def learnt(*seconds: float, key: str = KEY) -> Estimates:
    found = Estimates()
    for one in seconds:
        found.learn(key, one)
    return found


@pytest.mark.parametrize(
    ("opcode", "key"),
    [
        ({"OP_ID": "OP_EXEC", "argv": ["/usr/bin/make", "-j", "secret"]}, "OP_EXEC make"),
        ({"OP_ID": "OP_EXEC", "argv": ["x" * 500]}, "OP_EXEC " + "x" * 60),
        ({"OP_ID": "OP_EXEC"}, "OP_EXEC"),
        ({"OP_ID": "OP_EXEC", "argv": [7]}, "OP_EXEC"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 3}, "OP_TEST_DELAY"),
        ({"OP_ID": 4}, ""),
        ({}, ""),
    ],
)
def test_opcodes_are_told_apart_by_kind_and_program(opcode: dict[str, object], key: str) -> None:
    assert key_of(opcode) == key


def test_without_history_nothing_is_estimated() -> None:
    assert Estimates().of_key(KEY) is None
    assert learnt(3).of([KEY, "OP_NEW"]) is None
    assert Estimates().of([]) is None
    assert Estimates().usual() is None
    assert Estimates().accuracy() is None


def test_one_run_that_hung_moves_the_estimate_little() -> None:
    found = learnt(*[2.0] * 9, 4000.0).of_key(KEY)
    assert found is not None
    assert found.typical == 2.0


def test_an_estimate_follows_a_program_that_became_slower() -> None:
    found = learnt(*[2.0] * 100, *[20.0] * 8).of_key(KEY)
    assert found is not None
    assert found.typical == 20.0


def test_a_tenth_of_the_runs_lies_above_the_high_estimate() -> None:
    chance = random.Random(5)
    found = [learnt(*[chance.random() for _ in range(40)]).of_key(KEY) for _ in range(200)]
    above = sum(chance.random() > one.high for one in found if one is not None)
    assert 0.04 < above / 200 < 0.22


def test_the_opcodes_of_a_job_add_up() -> None:
    found = learnt(3.0)
    found.learn("OP_X", 4.0)
    job = found.of([KEY, "OP_X"])
    assert job is not None
    assert (job.count, job.typical, job.high) == (1, 7.0, 7.0)


def test_predictions_are_measured_before_the_run_time_is_learnt() -> None:
    found = learnt(2.0, 4.0).accuracy()
    assert found is not None
    # Predicted 2 s, ran 4.
    assert (found.count, found.median) == (1, 0.5)


def test_the_accuracy_of_equal_runs_is_perfect() -> None:
    found = learnt(*[2.0] * 50).accuracy()
    assert found is not None
    # Once there is a full history, one run time of four is compared.
    assert (found.count, found.median, found.high) == (23, 0.0, 0.0)


def test_the_median_error_is_that_of_the_middle() -> None:
    found = accuracy_of([0.1, 0.2, 0.3, 0.4, 9.0])
    assert found is not None
    assert (found.median, found.high) == (0.3, 9.0)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_an_impossible_run_time_is_not_learnt(seconds: float) -> None:
    assert len(learnt(seconds)) == 0


def test_the_key_that_was_not_seen_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "KEYS_MAX", 2)
    found = Estimates()
    for key in ("OP_A", "OP_B", "OP_A", "OP_C"):
        found.learn(key, 1.0)
    assert [found.of_key(key) is not None for key in ("OP_A", "OP_B", "OP_C")] == [
        True, False, True,
    ]  # fmt: skip


times = st.floats(0.001, 1e6)


@given(st.lists(st.tuples(st.sampled_from(["OP_A", "OP_B c", ""]), times), max_size=60))
def test_what_is_stored_is_read_again(learning: list[tuple[str, float]]) -> None:
    found = Estimates()
    for key, seconds in learning:
        found.learn(key, seconds)
    again = Estimates.decode(found.encode())
    assert again.encode() == found.encode()
    for key in ("OP_A", "OP_B c"):
        assert again.of_key(key) == found.of_key(key)
    assert again.accuracy() == found.accuracy()


@given(st.lists(times, min_size=1, max_size=60))
def test_an_estimate_lies_within_the_run_times_it_comes_from(seconds: list[float]) -> None:
    found = learnt(*seconds).of_key(KEY)
    assert found is not None
    kept = [float(f"{one:.4g}") for one in seconds[-estimates.KEPT_MAX :]]
    assert found.count == len(kept)
    assert min(kept) <= found.typical <= found.high <= max(kept)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\xff",
        b'{"format":2,"times":{},"errors":[]}',
        b'{"format":1,"times":{"OP_A":[]},"errors":[]}',
        b'{"format":1,"times":{"OP_A":[-1]},"errors":[]}',
        b'{"format":1,"times":{"OP_A":["x"]},"errors":[]}',
    ],
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(errors.StorageError, match=r"^estimates: "):
        Estimates.decode(data)
