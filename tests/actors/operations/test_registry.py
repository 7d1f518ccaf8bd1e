from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.core_alone import NEEDS_HIDDEN

from ganger.actors.operations import registry
from ganger.actors.operations.local_context import LocalContext
from ganger.storage import errors, opcodes, settings
from ganger.storage.opcodes import Opcode, OperationContext, OperationError, catalogue


def delay(**parameters: Any) -> dict[str, Any]:
    return {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": False, **parameters}


def open_descriptors() -> list[str]:
    # What other tests have left would go at any moment.
    gc.collect()
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


class OpTell(Opcode, kw_only=True):
    """Returns or raises what the test wants."""

    op_id: ClassVar[str] = "OP_TELL"
    outcome: ClassVar[Any] = None

    def run(self, context: OperationContext) -> object:
        context.log("telling")
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def tell(outcome: object, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(OpTell, "outcome", outcome)
    return registry.operation_for(OpTell())(OpTell(), LocalContext())


# Which operation runs.


def test_every_opcode_called_built_in_is_in_the_table_and_no_other() -> None:
    found = [catalogue.find(op_id) for op_id in catalogue.known_ids()]
    built_in = {
        declared.op_id
        for declared in found
        if declared is not None
        and declared.built_in
        and not declared.runs_in_store
        and not declared.asked_by
    }
    assert built_in == set(registry.OPERATIONS)


@NEEDS_HIDDEN
def test_an_opcode_without_an_operation_is_not_run() -> None:
    opcode = opcodes.parse({"OP_ID": "OP_CLUSTER_DESTROY"})
    with pytest.raises(errors.OperationMissingError, match="OP_CLUSTER_DESTROY"):
        registry.operation_for(opcode)


def test_a_users_opcode_runs_its_own_method(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tell({"size": 3}, monkeypatch) == {"size": 3}


def test_a_result_is_what_json_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tell((1, {2: "two"}), monkeypatch) == [1, {"2": "two"}]


@pytest.mark.parametrize("outcome", [object(), {"a": object()}, "\ud800"])
def test_a_result_that_json_cannot_hold_is_an_error(
    outcome: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OperationError, match="OP_TELL: the result cannot be stored") as caught:
        tell(outcome, monkeypatch)
    assert caught.value.name == "OpResultError"


def test_a_result_that_contains_itself_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(OperationError, match="the result cannot be stored"):
        tell(endless, monkeypatch)


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_result_is_nested_only_so_deep_that_every_reader_gets_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deepest = nested(settings.STORED_DEPTH_MAX)
    assert tell(deepest, monkeypatch) == deepest
    with pytest.raises(OperationError, match="stored as JSON: nested more than 100 levels"):
        tell([deepest], monkeypatch)


class UntellableError(Exception):
    """An error of a user's operation whose `str` fails."""

    def __str__(self) -> str:
        raise LookupError


@pytest.mark.parametrize("detail", [UntellableError(), nested(300), nested(100_000)])
def test_an_error_without_a_text_is_encoded_all_the_same(detail: object) -> None:
    error = detail if isinstance(detail, Exception) else OperationError("OpExecError", detail)
    name, [text] = registry.encode_exception(error)
    assert name == "OpExecError"
    assert isinstance(text, str)
    assert text


class LeavingError(BaseException):
    """What asyncio and test frameworks raise, past every ``except Exception``."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), GeneratorExit(), LeavingError()])
def test_no_exception_of_an_operation_ends_the_process_of_its_job(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OperationError, match=type(error).__name__):
        tell(error, monkeypatch)


def test_an_operation_that_exits_fails_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OperationError, match=r"the operation called exit \(3\)"):
        tell(SystemExit(3), monkeypatch)


# How errors are encoded.


@pytest.mark.parametrize(
    ("error", "pair"),
    [
        (
            OperationError("OpPrereqError", "Instance 'a' not known", "unknown_entity"),
            ["OpPrereqError", ["Instance 'a' not known", "unknown_entity"]],
        ),
        (OperationError("JobQueueFull"), ["JobQueueFull", []]),
        (OperationError("\ud800", "\ud800"), ["\\ud800", ["\\ud800"]]),
        (OperationError("OpExecError", "x", {"n": 1}), ["OpExecError", ["x", {"n": 1}]]),
        (OperationError("OpExecError", {1, 2} - {2}), ["OpExecError", [[1]]]),
        (OperationError("OpExecError", KeyError), ["OpExecError", ["<class 'KeyError'>"]]),
        (errors.OpcodeError("bad"), ["OpPrereqError", ["bad"]]),
        (errors.StorageError("full"), ["GenericError", ["full"]]),
        (KeyError("name"), ["OpExecError", ["KeyError: 'name'"]]),
        (RuntimeError(), ["OpExecError", ["RuntimeError"]]),
        (ValueError("\ud800"), ["OpExecError", ["ValueError: \\ud800"]]),
    ],
    ids=repr,
)
def test_an_exception_becomes_ganetis_pair(error: Exception, pair: list[Any]) -> None:
    assert registry.encode_exception(error) == pair


def test_an_operation_error_reads_as_its_text() -> None:
    assert str(OperationError("OpExecError", "it broke", 3)) == "it broke"
    assert str(OperationError("OpExecError")) == "OpExecError"


# The delay.


class Recording(LocalContext):
    """Notes what is waited for, and lets time pass at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.waits: list[tuple[list[int], float | None]] = []

    def clock(self) -> float:
        return self.now

    def poll(self, descriptors: Any, timeout_seconds: float | None) -> list[int]:
        assert timeout_seconds is not None
        self.waits.append((list(descriptors), timeout_seconds))
        # A wait may be over early, because a message came.
        self.now += timeout_seconds if timeout_seconds <= 1 else timeout_seconds / 2
        return []


def test_a_delay_waits_its_time_through_the_context() -> None:
    recording = Recording()
    assert recording.run(delay(duration=6.0)) is None
    assert recording.now == pytest.approx(6.0)
    assert [timeout for _, timeout in recording.waits] == [6.0, 3.0, 1.5, 0.75]
    assert recording.logged == []


def test_a_very_long_delay_waits_in_pieces_that_system_calls_take() -> None:
    recording = Recording()
    recording.run(delay(duration=10_000.0))
    assert recording.now == pytest.approx(10_000.0)
    longest = max(timeout or 0 for _, timeout in recording.waits)
    assert longest == registry.WAIT_SECONDS_MAX


def test_a_repeated_delay_announces_each_time() -> None:
    recording = Recording()
    recording.run(delay(duration=1.0, repeat=3))
    assert recording.lines() == [
        " - INFO: Test delay iteration 0/2",
        " - INFO: Test delay iteration 1/2",
        " - INFO: Test delay iteration 2/2",
    ]
    assert recording.now == pytest.approx(3.0)


@pytest.mark.parametrize("duration", [0, -1.0])
def test_a_delay_of_no_time_is_refused_as_ganeti_does(duration: float) -> None:
    with pytest.raises(OperationError) as caught:
        LocalContext().run(delay(duration=duration))
    assert registry.encode_exception(caught.value) == [
        "OpPrereqError",
        ["Duration must be greater than zero"],
    ]


def test_a_dry_delay_checks_but_does_not_wait() -> None:
    recording = Recording()
    recording.dry_run = True
    assert recording.run(delay(duration=5.0)) is None
    assert recording.waits == []
    with pytest.raises(OperationError):
        recording.run(delay(duration=0))


class Visited(LocalContext):
    """A client connects to the delay's socket as soon as its path is in the log."""

    def __init__(self, *, says: bytes, leaves: bool) -> None:
        super().__init__()
        self.visitor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._says = says
        self._leaves = leaves
        self._came_at = 0.0

    def clock(self) -> float:
        # Time passes for a silent visitor alone, and once it is there: a busy machine may be slow.
        return super().clock() - self._came_at if self._came_at else 0.0

    def log(self, text: str | list[str], kind: str = "message") -> None:
        super().log(text, kind)
        if kind == "delay-test":
            self.visitor.connect(text[0])
        elif str(text).startswith("Received"):
            if self._says:
                self.visitor.send(self._says)
            elif self._leaves:
                self.visitor.close()
            else:
                self._came_at = super().clock()


@pytest.mark.parametrize(("says", "leaves"), [(b"x", False), (b"", True)])
def test_an_interruptible_delay_ends_when_its_visitor_speaks_or_leaves(
    says: bytes, *, leaves: bool
) -> None:
    visited = Visited(says=says, leaves=leaves)
    with visited.visitor:
        assert visited.run(delay(duration=600, interruptible=True)) is None
    assert visited.lines() == [
        "Received connection, time to go is 600",
        "Interrupted, time spent waiting: 0",
    ]


def test_an_interruptible_delay_leaves_nothing_behind(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The name of this test is too long for the path of a socket.
    tmp_path = tmp_path_factory.mktemp("delay")
    monkeypatch.setenv("TMPDIR", os.fspath(tmp_path))
    before = open_descriptors()
    context = LocalContext()
    context.run(delay(interruptible=True))
    [message] = context.lines("delay-test")
    assert isinstance(message, list)
    assert message[0].startswith(f"{tmp_path}/")
    assert context.lines() == []
    assert list(tmp_path.iterdir()) == []
    assert open_descriptors() == before


def test_a_silent_visitor_does_not_prolong_the_delay() -> None:
    visited = Visited(says=b"", leaves=False)
    with visited.visitor:
        visited.run(delay(duration=0.02, interruptible=True))
    assert visited.lines() == ["Received connection, time to go is 0"]


def test_a_socket_that_cannot_be_made_is_an_error_and_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_deep = tmp_path / ("d" * 120)
    too_deep.mkdir()
    monkeypatch.setenv("TMPDIR", os.fspath(too_deep))
    with pytest.raises(OSError, match="path too long"):
        LocalContext().run(delay(interruptible=True))
    assert list(too_deep.iterdir()) == []


def test_running_operations_starts_no_thread() -> None:
    before = threading.active_count()
    LocalContext().run(delay())
    LocalContext().run({"OP_ID": "OP_EXEC", "argv": ["true"]})
    assert threading.active_count() == before


def test_a_local_context_skips_only_waits_after_the_line_with_a_limit_and_in_vain() -> None:
    context = LocalContext(skip_after="go", skips=1)
    start = context.clock()
    assert context.poll([], 0) == []
    assert context.clock() - start < 500
    context.log("go")
    reader, writer = os.pipe()
    os.close(writer)
    assert context.poll([reader], None) == [reader]
    assert context.poll([reader], 500.0) == [reader]
    os.close(reader)
    assert context.clock() - start < 500
    assert context.poll([], 500.0) == []
    assert context.clock() - start >= 500


# What an operation prints, and where it failed.


class OpTalk(Opcode, kw_only=True):
    """Prints, and may fail."""

    op_id = "OP_TALK"
    how: str = ""

    def run(self, _: OperationContext) -> str:
        match self.how:
            case "print":
                print("one\ntwo", end="")
                print(" more")
                print("oops", file=sys.stderr)
                sys.stdout.buffer.write(b"\xff\n")
                print("no end", end="", flush=True)
            case "thread":
                thread = threading.Thread(target=print, args=("from a thread",))
                thread.start()
                thread.join()
            case "fork":
                if (pid := os.fork()) == 0:
                    sys.stdout.write("of a child")
                    os._exit(0)
                os.waitpid(pid, 0)
            case "much":
                print("x" * 100 * 1024)
            case "fail":
                print("before")
                raise ValueError("no good \ud800")
            case "deep":
                return deep(2_000)
            case "exit":
                sys.exit(3)
            case "tell":
                raise OperationError("OpPrereqError", "as it is")
        return "done"


def deep(depth: int) -> str:
    return deep(depth - 1) if depth else "never"


def talk(how: str) -> tuple[LocalContext, Exception | None]:
    context = LocalContext()
    try:
        registry.operation_for(OpTalk(how=how))(OpTalk(how=how), context)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is what is looked at
        return context, error  # type: ignore[return-value]
    return context, None


def test_what_an_operation_prints_is_output_of_its_job() -> None:
    before = sys.stdout, sys.stderr
    context, error = talk("print")
    assert error is None
    assert (sys.stdout, sys.stderr) == before
    assert context.lines("stdout") == ["one", "two more", "\ufffd", "no end"]
    assert context.lines("stderr") == ["oops"]
    assert context.written_to("stdout") == b"one\ntwo more\n\xff\nno end"
    assert context.written_to("stderr") == b"oops\n"


def test_what_another_thread_prints_is_passed_on_too() -> None:
    context, _ = talk("thread")
    assert context.lines("stdout") == ["from a thread"]


def test_a_forked_child_does_not_speak_for_the_job(capfd: pytest.CaptureFixture[str]) -> None:
    context, error = talk("fork")
    assert error is None
    assert context.lines("stdout") == []
    assert capfd.readouterr().out == "of a child"


class OpFork(Opcode, kw_only=True):
    """Forks a child that leaves the operation; the result is the child's exit code."""

    op_id = "OP_FORK"
    error: ClassVar[BaseException | None] = None

    def run(self, _: OperationContext) -> int | None:
        if (pid := os.fork()) != 0:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if self.error is not None:
            raise self.error
        return None


@pytest.mark.parametrize(
    ("error", "code"), [(None, 0), (SystemExit(3), 3), (ValueError("in the child"), 1)]
)
def test_a_forked_child_that_leaves_the_operation_ends(
    error: BaseException | None,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(OpFork, "error", error)
    context, parent = LocalContext(), os.getpid()
    try:
        result = registry.operation_for(OpFork())(OpFork(), context)
    finally:
        if os.getpid() != parent:
            os._exit(99)
    assert result == code
    assert context.lines("traceback") == []
    printed = capfd.readouterr().err.splitlines()
    assert printed[-1:] == (["ValueError: in the child"] if code == 1 else [])


def test_of_much_that_is_printed_the_log_has_the_beginning() -> None:
    context, _ = talk("much")
    logged = sum(len(str(line)) for line in context.lines("stdout"))
    assert logged <= 64 * 1024
    assert len(context.written_to("stdout")) == 100 * 1024 + 1


def test_where_an_operation_failed_is_in_the_log() -> None:
    context, error = talk("fail")
    assert isinstance(error, ValueError)
    first, *rest, last = map(str, context.lines("traceback"))
    assert first == "Traceback (most recent call last):"
    assert rest[0].endswith("in run")
    assert 'raise ValueError("no good' in rest[1]
    assert last == "ValueError: no good \\ud800"
    assert context.lines("stdout") == ["before"]


def test_of_a_long_traceback_the_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    context, _ = talk("fail")
    whole = [*map(str, context.lines("traceback"))]
    size = sum(len(line.encode()) + 1 for line in whole)
    for room, kept in ((size, whole), (size - 1, ["... (the beginning is cut)", *whole[1:]])):
        monkeypatch.setattr(settings, "TRACEBACK_BYTES_MAX", room)
        context, _ = talk("fail")
        assert context.lines("traceback") == kept
    monkeypatch.setattr(settings, "TRACEBACK_BYTES_MAX", 200)
    context, error = talk("deep")
    assert isinstance(error, RecursionError)
    first, *rest = map(str, context.lines("traceback"))
    assert first == "... (the beginning is cut)"
    assert rest[-1].startswith("RecursionError: ")
    assert sum(map(len, rest)) <= 200


def test_an_exit_is_logged_with_the_place_of_its_call() -> None:
    context, error = talk("exit")
    assert str(error) == "OP_TALK: the operation called exit (3)"
    assert context.lines("traceback")[-1] == "SystemExit: 3"


def test_an_error_that_an_operation_raises_on_purpose_has_no_traceback() -> None:
    context, error = talk("tell")
    assert str(error) == "as it is"
    assert context.lines("traceback") == []
