"""Descriptors are shared out: no part of the daemon takes those of another."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from ganger.storage import errors, settings
from ganger.storage.disk import descriptors

WISHES = {"few": 256, "many": 8_192}


@pytest.mark.parametrize("limit", [128, 200, 256, 1_024, 4_096, 20_000, 65_536])
@pytest.mark.parametrize("is_remote", [False, True])
def test_all_shares_together_are_never_more_than_there_are(limit: int, *, is_remote: bool) -> None:
    if is_remote and limit < settings.DESCRIPTORS_REMOTE_MIN:
        return
    budget = descriptors.share(limit, is_remote=is_remote, wishes=WISHES)
    listeners = 2 * budget.listener + settings.ACCEPTED_UNSEEN_MAX if is_remote else budget.listener
    jobs = budget.run_slots * settings.DESCRIPTORS_PER_JOB
    doors = listeners + sum(budget.doors.values())
    assert doors + jobs + settings.DESCRIPTORS_OWN <= limit
    assert budget.run_slots >= 1
    assert budget.listener >= 16
    assert budget.doors.keys() == WISHES.keys()
    for name, count in budget.doors.items():
        assert 3 <= count <= WISHES[name]


@pytest.mark.parametrize(
    ("limit", "is_remote", "needed"), [(64, False, 128), (127, False, 128), (1_024, True, 4_096)]
)
def test_too_few_descriptors_are_refused_with_the_number_needed(
    limit: int, needed: int, *, is_remote: bool
) -> None:
    with pytest.raises(errors.OperatorError, match=f"only {limit} files .* needs {needed}"):
        descriptors.share(limit, is_remote=is_remote, wishes=WISHES)


def test_with_usual_limits_there_are_more_than_the_usual_run_slots() -> None:
    assert (
        descriptors.share(1_024, is_remote=False, wishes=WISHES).run_slots
        > 10 * settings.RUNNING_JOBS_MAX
    )


def test_small_wishes_are_fulfilled_and_large_ones_share_the_rest() -> None:
    doors = descriptors.share(65_536, is_remote=False, wishes=WISHES).doors
    assert doors == WISHES
    doors = descriptors.share(4_096, is_remote=False, wishes=WISHES | {"more": 9_000}).doors
    assert doors["few"] == 256
    assert abs(doors["many"] - doors["more"]) <= 1
    assert descriptors.share(4_096, is_remote=False, wishes={}).doors == {}


def test_the_limit_is_raised_and_set_back_for_others() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    script = (
        "import os, resource\n"
        "from ganger.storage.disk import descriptors\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard}))\n"
        "before = descriptors.raise_limit()\n"
        "raised = resource.getrlimit(resource.RLIMIT_NOFILE)[0]\n"
        "descriptors.set_limit(before, os.getpid())\n"
        "print(before, raised, resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert list(map(int, done.stdout.split())) == [100, min(hard, settings.DESCRIPTORS_MAX), 100]
