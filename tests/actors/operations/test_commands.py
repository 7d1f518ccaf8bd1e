from __future__ import annotations

import gc
import os
import select
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.actors.operations import command_output, commands
from ganger.actors.operations.local_context import LocalContext
from ganger.storage.alive import process_identity
from ganger.storage.opcodes import OperationError

DEADLINE_MILLISECONDS = 10_000


def run(context: LocalContext, *argv: str, **parameters: Any) -> dict[str, Any]:
    result = context.run({"OP_ID": "OP_EXEC", "argv": list(argv), **parameters})
    assert isinstance(result, dict)
    return result


def failure(context: LocalContext, *argv: str, **parameters: Any) -> tuple[str, dict[str, Any]]:
    """The text and the result of a command that must fail."""
    with pytest.raises(OperationError) as caught:
        run(context, *argv, **parameters)
    assert caught.value.name == "OpExecError"
    text, result = caught.value.details
    assert isinstance(text, str)
    assert isinstance(result, dict)
    return text, result


def refusal(*argv: str, **parameters: Any) -> str:
    """Why a command could not be started."""
    return not_started(*argv, **parameters)[0]


def not_started(*argv: str, **parameters: Any) -> tuple[str, int | None]:
    """Why a command could not be started, and what a shell would end with then, if it would."""
    with pytest.raises(OperationError) as caught:
        run(LocalContext(), *argv, **parameters)
    assert caught.value.name == "OpExecError"
    text, *more = caught.value.details
    assert isinstance(text, str)
    match more:
        case []:
            return text, None
        case [{"shell_code": int(code), **rest}] if not rest:
            return text, code
    raise AssertionError(more)


def open_descriptors() -> list[str]:
    # What other tests have left would go at any moment.
    gc.collect()
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


# What a command gets.


def test_a_command_that_succeeds_has_its_output_in_the_result() -> None:
    context = LocalContext()
    result = run(context, "sh", "-c", "echo out; echo err >&2")
    assert result.pop("duration") > 0
    assert result == {
        "exit_code": 0,
        "signal": None,
        "stdout_tail": "out\n",
        "stderr_tail": "err\n",
        "stdout_bytes": 4,
        "stderr_bytes": 4,
        "truncated": False,
        "timed_out": False,
    }
    assert sorted(context.logged) == [("stderr", "err"), ("stdout", "out")]


def test_arguments_are_passed_on_untouched_by_a_shell() -> None:
    context = LocalContext()
    run(context, "printf", "%s\\n", "$HOME *", "ä'\"", "")
    assert context.lines("stdout") == ["$HOME *", "ä'\"", ""]


def test_the_environment_is_clean_but_for_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_DAEMON", "secret")
    monkeypatch.setenv("HOME", "/home/of-the-daemon")
    context = LocalContext()
    run(context, "env", env={"ADDED": "a=b ä", "LANG": "C"})
    lines = context.lines("stdout")
    variables = dict(line.split("=", 1) for line in lines if isinstance(line, str))
    assert variables["PATH"] == commands.PATH
    assert variables["HOME"] == "/home/of-the-daemon"
    assert variables["LANG"] == "C"
    assert variables["ADDED"] == "a=b ä"
    assert variables["GANGER_JOB_ID"] == "1"
    assert variables["GANGER_OPCODE_INDEX"] == "0"
    assert "OF_THE_DAEMON" not in variables


def test_a_command_is_looked_for_in_the_path_it_is_given(tmp_path: Path) -> None:
    program = tmp_path / "greet"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    context = LocalContext()
    run(context, "greet", env={"PATH": f"/nowhere:{tmp_path}"})
    assert context.lines("stdout") == ["hello"]
    assert refusal("greet") == "command cannot be started: 'greet' not found"


def test_a_command_runs_in_its_directory_and_the_job_stays_in_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "here"
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o755)
    before = tmp_path / "of the job"
    before.mkdir()
    monkeypatch.chdir(before)
    context = LocalContext()
    run(context, "./here", cwd=os.fspath(tmp_path))
    run(context, "pwd")
    assert context.lines("stdout") == [os.fspath(tmp_path), "/"]
    assert Path.cwd() == before


def test_a_command_reads_what_it_is_given() -> None:
    context = LocalContext()
    # More than a pipe holds, so that feeding and reading must not wait for each other.
    text = "ä line\n" * 50_000
    assert run(context, "sha256sum", stdin=text)["exit_code"] == 0
    run(context, "wc", "-c", stdin=text)
    assert context.lines("stdout")[1] == str(len(text.encode()))


def test_a_command_that_is_given_nothing_to_read_finds_the_end_at_once() -> None:
    assert run(LocalContext(), "cat")["stdout_tail"] == ""


def test_a_command_inherits_no_descriptor_but_its_standard_ones() -> None:
    leaky = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaky, True)  # noqa: FBT003 - positional by definition
    try:
        context = LocalContext()
        run(context, "ls", "/proc/self/fd")
    finally:
        os.close(leaky)
    # The last one is that of the listing itself, which takes the first free number.
    assert context.lines("stdout") == ["0", "1", "2", "3"]


def test_a_command_can_be_run_by_a_job_without_standard_descriptors() -> None:
    child = os.fork()
    if child == 0:
        try:
            os.closerange(0, 3)
            context = LocalContext()
            run(context, "sh", "-c", "cat; echo err >&2", stdin="in\n")
            expected = [("stderr", "err"), ("stdout", "in")]
            os._exit(0 if sorted(context.logged) == expected else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_command_gets_default_signals_and_blocks_none() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    ignored = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        context = LocalContext()
        run(context, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    finally:
        signal.signal(signal.SIGUSR2, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    masks = dict(str(line).split(":\t") for line in context.lines("stdout"))
    assert int(masks["SigBlk"], 16) == 0
    # Two signals belong to the C library, which does not let them be set.
    for number in signal.valid_signals():
        assert not int(masks["SigIgn"], 16) & 1 << (number - 1), number


def test_a_command_leads_a_process_group_of_its_own() -> None:
    context = LocalContext()
    run(context, "sh", "-c", "echo $$; cut -d' ' -f5 /proc/$$/stat")
    pid, group = (str(line).strip() for line in context.lines("stdout"))
    assert pid == group != str(os.getpgrp())


# How a command ends.


def test_an_exit_code_that_means_failure_is_an_error_with_the_whole_result() -> None:
    text, result = failure(LocalContext(), "sh", "-c", "echo oops >&2; exit 3")
    assert text == "command exited with code 3"
    assert result["exit_code"] == 3
    assert result["stderr_tail"] == "oops\n"
    assert result["duration"] > 0


def test_an_exit_code_declared_good_is_a_success() -> None:
    assert run(LocalContext(), "sh", "-c", "exit 3", ok_exit_codes=[0, 3])["exit_code"] == 3
    text, _ = failure(LocalContext(), "true", ok_exit_codes=[3])
    assert text == "command exited with code 0"


def test_a_command_ended_by_a_signal_is_an_error_that_names_it() -> None:
    text, result = failure(LocalContext(), "sh", "-c", "kill -USR1 $$")
    assert text == "command was ended by SIGUSR1"
    assert (result["exit_code"], result["signal"]) == (None, signal.SIGUSR1)
    text, _ = failure(LocalContext(), "sh", "-c", "kill -40 $$")
    assert text == "command was ended by signal 40"


def test_a_command_past_its_time_limit_is_asked_to_end() -> None:
    context = LocalContext(skip_after="ready")
    text, result = failure(context, "sh", "-c", "echo ready; exec sleep 1000", timeout=60)
    assert text == "command exceeded its time limit of 60 s"
    assert (result["timed_out"], result["signal"]) == (True, signal.SIGTERM)
    assert 60 <= result["duration"] < 65


def test_a_real_time_limit_is_kept() -> None:
    text, _ = failure(LocalContext(), "sleep", "1000", timeout=0.02)
    assert text == "command exceeded its time limit of 0.02 s"


def test_a_command_that_does_not_end_when_asked_is_ended_after_the_grace() -> None:
    context = LocalContext(skip_after="ready", skips=2)
    script = "trap '' TERM; echo ready; exec sleep 1000"
    text, result = failure(context, "sh", "-c", script, timeout=60)
    assert text == "command exceeded its time limit of 60 s"
    assert (result["timed_out"], result["signal"]) == (True, signal.SIGKILL)
    assert 65 <= result["duration"] < 70


def test_a_command_that_ends_well_when_asked_has_still_failed() -> None:
    context = LocalContext(skip_after="ready")
    script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    text, result = failure(context, "sh", "-c", script, timeout=60)
    assert text == "command exceeded its time limit of 60 s"
    assert (result["exit_code"], result["stdout_tail"]) == (0, "ready\nbye\n")


class WatchedBackground(LocalContext):
    """Opens a pidfd for the process whose number the command prints first."""

    pidfd = -1

    def log_lines(self, lines: list[str], kind: str = "message") -> None:
        super().log_lines(lines, kind)
        for line in lines:
            if line.isdigit():
                self.pidfd = process_identity.open_pidfd(int(line))

    def is_gone(self) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        gone = bool(poll.poll(DEADLINE_MILLISECONDS))
        os.close(self.pidfd)
        return gone


def test_a_background_process_that_keeps_the_output_open_does_not_hold_the_opcode() -> None:
    context = WatchedBackground(skip_after="ready")
    result = run(context, "sh", "-c", "sleep 1000 & echo $!; echo ready")
    assert result["exit_code"] == 0
    assert context.is_gone()
    [text] = context.lines()
    assert str(text).startswith("The command has ended, but processes that it left behind")


def test_a_silent_background_process_is_ended_too() -> None:
    context = WatchedBackground()
    run(context, "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
    assert context.is_gone()
    assert context.lines() == []


def test_output_of_a_background_process_is_logged_if_it_comes_in_time(tmp_path: Path) -> None:
    class Patient(LocalContext):
        """Time stands still, so that no limit is ever reached."""

        def clock(self) -> float:
            return 0.0

    context = Patient()
    script = "mkfifo f; (cat f; echo late) & exec sh -c 'echo early; : >f'"
    run(context, "sh", "-c", script, cwd=os.fspath(tmp_path))
    assert context.lines("stdout") == ["early", "late"]
    assert context.lines() == []


def test_a_command_that_leaves_its_group_is_ended_at_its_limit_all_the_same() -> None:
    context = LocalContext(skip_after="ready")
    # The one group that it can move into is that of the process that runs this test.
    script = (
        "import os, time; os.setpgid(0, os.getpgid(os.getppid()));"
        "print('ready', flush=True); time.sleep(1000)"
    )
    text, result = failure(context, sys.executable, "-c", script, timeout=60)
    assert text == "command exceeded its time limit of 60 s"
    assert result["signal"] == signal.SIGTERM


def test_nothing_is_left_when_the_job_breaks_off_in_the_middle() -> None:
    class BreaksOff(WatchedBackground):
        def log_lines(self, lines: list[str], kind: str = "message") -> None:
            super().log_lines(lines, kind)
            raise RuntimeError("the job must end")

    before = open_descriptors()
    context = BreaksOff()
    with pytest.raises(RuntimeError, match="the job must end"):
        run(context, "sh", "-c", "echo $$; exec sleep 1000")
    assert context.is_gone()
    assert open_descriptors() == before


def test_no_descriptor_and_no_zombie_is_left() -> None:
    before, children = open_descriptors(), own_children()
    run(LocalContext(), "true", stdin="x")
    refusal("no-such-command")
    assert open_descriptors() == before
    # Other tests of this process may have left some.
    assert own_children() <= children


def own_children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


# What cannot be started.


def test_what_cannot_be_started_is_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo hello\n")
    orphan = tmp_path / "orphan"
    orphan.write_text("#!/no/such/interpreter\n")
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF")
    for path in (orphan, broken):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    begin = "command cannot be started: "
    assert refusal("no-such-command") == f"{begin}'no-such-command' not found"
    assert refusal("/no/such/file") == f"{begin}'/no/such/file' not found"
    assert refusal("plain", env={"PATH": os.fspath(tmp_path)}) == (
        f"{begin}'plain' ({plain}) is not executable"
    )
    assert refusal(os.fspath(plain)) == f"{begin}'{plain}' is not executable"
    assert refusal(os.fspath(orphan)) == (
        f"{begin}'{orphan}': the interpreter that its first line names does not exist"
    )
    assert refusal(os.fspath(broken)) == f"{begin}'{broken}': Exec format error"
    assert refusal("true", cwd="/no/such") == f"{begin}cwd '/no/such': No such file or directory"
    assert refusal("true", cwd=os.fspath(plain)) == f"{begin}cwd '{plain}': Not a directory"
    assert refusal("true", "x" * 10**6).endswith("Argument list too long")
    assert refusal("/etc") == f"{begin}'/etc' is a directory"


def test_what_cannot_be_started_has_the_exit_code_of_a_shell(tmp_path: Path) -> None:
    orphan = tmp_path / "orphan"
    orphan.write_text("#!/no/such/interpreter\n")
    orphan.chmod(0o755)
    codes = {"no-such-command": 127, "/no/such/file": 127, "/etc": 126, "/etc/passwd": 126}
    for name, code in {**codes, os.fspath(orphan): 126}.items():
        assert not_started(name)[1] == code, name
    assert not_started("true", "x" * 10**6)[1] == 126
    # It is not the command that is at fault.
    assert not_started("true", cwd="/no/such")[1] is None


def test_a_dry_run_checks_only_that_the_command_is_there(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    context = LocalContext(dry_run=True)
    command = {"OP_ID": "OP_EXEC", "argv": ["touch", os.fspath(mark)]}
    assert context.run(command) is None
    assert not mark.exists()
    assert len(context.lines()) == 1
    with pytest.raises(OperationError, match="'no-such-command' not found"):
        context.run({"OP_ID": "OP_EXEC", "argv": ["no-such-command"]})


# Output.


def test_output_is_logged_as_it_comes(tmp_path: Path) -> None:
    class Answering(LocalContext):
        """Lets the command go on only after its first line is in the log."""

        def log_lines(self, lines: list[str], kind: str = "message") -> None:
            super().log_lines(lines, kind)
            if "first" in lines:
                with fifo.open("w") as file:
                    file.write("second\n")

    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    context = Answering()
    run(context, "sh", "-c", f"echo first; cat {fifo}", timeout=DEADLINE_MILLISECONDS / 1000)
    assert context.lines("stdout") == ["first", "second"]


def test_a_last_line_without_an_end_is_logged() -> None:
    context = LocalContext()
    run(context, "printf", "one\\n\\ntwo")
    assert context.lines("stdout") == ["one", "", "two"]


def test_what_is_not_utf8_is_replaced() -> None:
    context = LocalContext()
    assert run(context, "printf", "a\\377b\\n")["stdout_tail"] == "a\ufffdb\n"
    assert context.lines("stdout") == ["a\ufffdb"]


def test_long_lines_are_split_between_characters() -> None:
    context = LocalContext()
    text = "x" + "ä" * 9_000
    run(context, "cat", stdin=text + "\nend")
    lines = [str(line) for line in context.lines("stdout")]
    assert lines[-1] == "end"
    assert "".join(lines[:-1]) == text
    assert max(len(line.encode()) for line in lines) <= command_output.LINE_BYTES_MAX


def test_a_line_that_just_fits_waits_for_its_end() -> None:
    line = b"x" * command_output.LINE_BYTES_MAX
    buffer = bytearray(line)
    assert command_output.take_pieces(buffer) == []
    buffer += b"\n" + line + b"y"
    assert command_output.take_pieces(buffer) == [line + b"\n", line]
    assert buffer == b"y"


def test_output_is_passed_on_as_it_comes() -> None:
    context = LocalContext()
    script = "printf 'a\\377\\000b'; printf 'err\\n' >&2; sleep 0.05; printf end"
    result = run(context, "sh", "-c", script)
    assert context.written_to("stdout") == b"a\xff\x00bend"
    assert context.written_to("stderr") == b"err\n"
    assert (result["stdout_bytes"], result["stderr_bytes"]) == (7, 4)


def test_output_above_its_limit_is_read_and_dropped() -> None:
    context = LocalContext()
    context.output_limit = 100_000
    result = run(context, "head", "-c", "3000000", "/dev/zero")
    assert result["truncated"]
    assert result["stdout_bytes"] == 3_000_000
    assert len(context.written_to("stdout")) == 100_000


def test_the_log_has_the_first_lines_and_refers_to_the_output_for_all() -> None:
    context = LocalContext()
    result = run(context, "seq", "25000")
    assert not result["truncated"]
    lines = context.lines("stdout")
    assert lines == [str(number) for number in range(1, command_output.LOG_LINES_MAX + 1)]
    kept = sum(len(str(line)) + 1 for line in lines)
    [logged] = context.lines("output")
    assert logged == (
        f"This log has the first 1000 lines ({kept} bytes) of the output; "
        "the job's output has all of it"
    )
    assert result["stdout_tail"].endswith("24999\n25000\n")
    assert context.written_to() == b"".join(b"%d\n" % number for number in range(1, 25_001))
    # The mark stands where the log breaks off.
    assert [kind for kind, _ in context.logged[-2:]] == ["stdout", "output"]


def test_the_log_holds_a_limited_number_of_bytes() -> None:
    context = LocalContext()
    size = command_output.LOG_BYTES_MAX + 5_000
    result = run(context, "head", "-c", str(size), "/dev/zero")
    assert not result["truncated"]
    kept = sum(len(line) for line in context.lines("stdout"))
    assert kept == command_output.LOG_BYTES_MAX
    assert len(context.lines("output")) == 1
    assert len(result["stdout_tail"]) == command_output.TAIL_BYTES_MAX
    assert len(context.written_to()) == size


def test_output_that_just_fits_is_logged_without_a_word() -> None:
    context = LocalContext()
    run(context, "seq", str(command_output.LOG_LINES_MAX))
    assert context.lines("output") == []


def test_a_tail_begins_with_a_whole_character() -> None:
    result = run(LocalContext(), "cat", stdin="x" + "€" * 3_000)
    assert set(result["stdout_tail"]) == {"€"}
    assert len(result["stdout_tail"].encode()) > command_output.TAIL_BYTES_MAX - 3


@given(st.lists(st.binary(max_size=30_000), max_size=4))
def test_cutting_output_into_pieces_loses_nothing(chunks: list[bytes]) -> None:
    buffer = bytearray()
    pieces: list[bytes] = []
    for chunk in chunks:
        buffer += chunk
        pieces += command_output.take_pieces(buffer)
        assert len(buffer) <= command_output.LINE_BYTES_MAX
        assert b"\n" not in buffer
    assert b"".join(pieces) + buffer == b"".join(chunks)
    for piece in pieces:
        assert piece
        assert len(piece.removesuffix(b"\n")) <= command_output.LINE_BYTES_MAX
        assert b"\n" not in piece[:-1]


@given(
    st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=200)), max_size=30)
)
def test_all_output_is_passed_on_and_its_beginning_logged(chunks: list[tuple[str, bytes]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(command_output, "LOG_BYTES_MAX", 300)
        patched.setattr(command_output, "LOG_LINES_MAX", 10)
        patched.setattr(command_output, "LINE_BYTES_MAX", 50)
        context = LocalContext()
        log = command_output.OutputLog(context)
        pipes = {kind: os.pipe() for kind in ("stdout", "stderr")}
        outputs = {
            kind: command_output.Output(reader, kind, log, context)
            for kind, (reader, _) in pipes.items()
        }
        for kind, chunk in chunks:
            os.write(pipes[kind][1], chunk)
            outputs[kind].read()
        for output in outputs.values():
            output.finish()
        for reader, writer in pipes.values():
            os.close(reader)
            os.close(writer)
    assert context.written == [(kind, chunk) for kind, chunk in chunks if chunk]
    for kind, output in outputs.items():
        assert output.size == len(context.written_to(kind))
        written = context.written_to(kind).split(b"\n")
        if not log.is_full and all(len(line) < 50 for line in written):
            lines = written if written[-1] else written[:-1]
            assert context.lines(kind) == [line.decode(errors="replace") for line in lines]
    assert log.is_full == bool(context.lines("output"))
    assert len(context.lines("stdout")) + len(context.lines("stderr")) <= 10
