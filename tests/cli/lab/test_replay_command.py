"""``ganger queue simulate`` with a trace: plays it without a daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ganger.actors.lab import policies
from ganger.cli import queue as queue_commands
from ganger.cli.main import ganger, main
from ganger.storage.lab import generating, traces

TRACE = b"""{"trace":1,"slots":1}
{"at":0,"id":1,"ops":[{"op":"OP_EXEC","seconds":3}]}
{"at":1,"id":2,"ops":[{"op":"OP_EXEC","seconds":4}]}
"""


def simulated(*words: str, data: bytes | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(ganger, ["queue", "simulate", *words], input=data)
    return done.exit_code, done.output


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["queue", "simulate", *words])
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "week.trace"
    path.write_bytes(TRACE)
    return str(path)


def test_a_trace_is_played_under_every_policy(trace: str) -> None:
    code, shown = simulated("--trace", trace)
    first, headings, *rows, estimates = shown.splitlines()
    assert (code, first) == (0, "2 jobs on 1 run slot; times in seconds")
    assert headings.split() == [
        "policy", "makespan", "wait_mean", "wait_p99", "wait_max", "slots_waiting",
    ]  # fmt: skip
    assert rows[0].split() == ["fifo", "7.0", "1.0", "2.0", "2.0", "0.0%"]
    assert rows[-1].split() == ["bound", "7.0", "1.0", "-", "-", "-"]
    # The second job ran for 4 s, and the first one for 3.
    assert estimates == (
        "Run times, estimated from jobs that had ended: median error 25%, nine of ten within 25%"
        " (opcodes: 1)"
    )


def test_a_trace_is_read_from_standard_input_and_played_on_other_slots() -> None:
    _, shown = simulated(
        "--trace", "-", "--slots", "2", "--policy", "fifo", "-o", "json", data=TRACE
    )
    found = json.loads(shown)
    assert (found["jobs"], found["slots"]) == (2, 2)
    [one] = found["policies"]
    assert (one["policy"], one["makespan"], one["slots_waiting"]) == ("fifo", 5.0, 0.0)


def test_a_generated_trace_is_that_of_its_seed() -> None:
    words = ("--generate", "hot", "--jobs", "100", "--policy", "fifo")
    first, second = (simulated(*words, "--seed", seed)[1] for seed in ("3", "4"))
    assert simulated(*words, "--seed", "3")[1] == first != second


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--trace", "/no/such"), "--trace: '/no/such': No such file or directory"),
        (("--generate", "mixed", "--policy", "lifo"), "--policy: there is no policy 'lifo';"),
        (("--generate", "weird"), "Invalid value for '--generate'"),
        (("--generate", "mixed", "--jobs", "0"), "expected at least 1, got 0"),
        (("--generate", "mixed", "--slots", "0"), "expected at least 1, got 0"),
        (("--generate", "mixed", "--trace", "x"), "give either --trace or --generate"),
        (("--trace", "x", "--seed", "3"), "--jobs and --seed: go with --generate"),
        (("--trace", "x", "--ended", "3"), "--trace and --generate: go with --slots alone"),
        (("--policy", "fifo"), "--policy, --jobs and --seed: go with --trace or --generate"),
    ],
)
def test_a_wrong_parameter_gets_one_line(
    words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = refused(capsys, *words)
    assert line in shown
    assert shown.count("\n") == 1


def test_a_damaged_trace_gets_one_line_with_its_name_and_line(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(trace)
    path.write_bytes(TRACE.replace(b'"seconds":4', b'"seconds":-4'))
    shown = refused(capsys, "--trace", trace)
    assert shown == (f"ganger: {trace}, line 3: Expected `float` >= 0.0 - at `ops[0].seconds`\n")


def test_the_command_line_knows_the_kinds_of_traces() -> None:
    # It names them itself: the help imports no generator.
    assert queue_commands.TRACE_KINDS == generating.KINDS
    assert (*policies.POLICIES, policies.BOUND) == queue_commands.TRACE_POLICIES
    assert queue_commands.TRACE_JOBS_MAX == traces.JOBS_MAX
