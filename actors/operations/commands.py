"""Runs the command of an ``OP_EXEC``: starts it, follows its output, ends what is left of it.

How it works. The job's process spawns the command in a process group of its own; the command
inherits only its three standard descriptors. The job waits, through its context, for three
descriptors: the two pipes of the output, and a pidfd that reports the command's own end. It
reaps the command last: while the command is a zombie, no other process group gets its number,
and signals to the group cannot hit strangers. `descendants` ends processes that leave the group
(by ``setsid``).

Imported by the lean fork server, so it imports only what is cheap.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING, Any

from ...storage import wording
from ...storage.alive import process_identity
from ...storage.opcodes import KilledError, OperationError
from ..processes.sessions import IDENTITY_VARIABLE
from . import on_node
from .command_output import Output, OutputLog

if TYPE_CHECKING:
    from ...storage.opcodes import OperationContext
    from ...storage.opcodes.catalogue import OpExec

GRACE_SECONDS = 5.0
"""The time between SIGTERM to a command past its time limit, and SIGKILL."""

END_OF_OUTPUT_SECONDS = 1.0
"""How long left-over processes may keep the output of an ended command open."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The search path for commands, unless the opcode's environment has another."""

_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_NO_ROOM = (errno.EAGAIN, errno.ENOMEM)
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "TZ", "USER")
_WAIT_SECONDS_MAX = 3600.0
_LAST_STANDARD_DESCRIPTOR = 2


def run_command(opcode: OpExec, context: OperationContext) -> dict[str, Any] | None:
    """Run the command; return its exit code, tails of its output and so on.

    Raises `OperationError` with the same values unless the command ended in time, with an exit
    code that means success. A dry run checks only that there is such a command.
    """
    if opcode.node is not None or opcode.nodes:
        return on_node.run_on_node(opcode, context)  # type: ignore[arg-type]
    variables = _environment(opcode, context)
    if context.dry_run:
        with _Inside(opcode):
            path = _find_program(opcode, variables)
        context.log(f"Dry run: {path} is there and could be run")
        return None
    command = _Command(opcode, variables, context)
    try:
        command.follow()
    finally:
        command.end()
    result = command.result()
    if fault := _fault(opcode, result, was_killed=command.was_killed):
        raise OperationError("OpExecError", fault, result)
    return result


def without_tails(result: dict[str, Any]) -> dict[str, Any]:
    """The result of a command without the tails of its output, for which the job has no room."""
    return {**result, "stdout_tail": "", "stderr_tail": "", "truncated": True}


def _fault(opcode: OpExec, result: dict[str, Any], *, was_killed: bool) -> str | None:
    if was_killed:
        how = f"code {result['exit_code']}"
        if result["signal"] is not None:
            how = wording.signal_name(result["signal"])
        return f"command was killed on request, and ended by {how}"
    if result["timed_out"]:
        return f"command exceeded its time limit of {opcode.timeout:g} s"
    if result["signal"] is not None:
        return f"command was ended by {wording.signal_name(result['signal'])}"
    if result["exit_code"] not in opcode.ok_exit_codes:
        return f"command exited with code {result['exit_code']}"
    return None


class _Command:
    """A started command with its descriptors, limits and output."""

    def __init__(
        self, opcode: OpExec, variables: dict[str, str], context: OperationContext
    ) -> None:
        self._context = context
        self._started_at = self._ended_at = context.clock()
        self._is_running = True
        self._timed_out = False
        self._is_asked_to_end = False
        self.was_killed = False
        self._status: os.waitid_result | None = None
        self._limit = None if opcode.timeout is None else self._started_at + opcode.timeout
        self._log = OutputLog(context)
        self._pid, self._pidfd, outputs = _spawn(opcode, variables, context)
        self._outputs = tuple(
            Output(descriptor, kind, self._log, context)
            for descriptor, kind in zip(outputs, ("stdout", "stderr"), strict=True)
        )
        self._open = {output.descriptor: output for output in self._outputs}

    def follow(self) -> None:
        """Take the output as it comes until the command and its output have ended."""
        while not self._is_over():
            waited_for = [*self._open, self._pidfd] if self._is_running else [*self._open]
            for descriptor in self._poll(waited_for):
                if descriptor == self._pidfd:
                    self._is_running = False
                    self._ended_at = self._context.clock()
                    self._limit = self._ended_at + END_OF_OUTPUT_SECONDS
                elif not self._open[descriptor].read():
                    del self._open[descriptor]
            self._keep_limits()
        if self._open:
            self._context.log(
                "The command has ended, but processes that it left behind kept its output open; "
                "those in its process group are ended"
            )
        for output in self._outputs:
            output.finish()

    def _poll(self, descriptors: list[int]) -> list[int]:
        try:
            return self._context.poll(descriptors, self._patience())
        except KilledError:
            self.was_killed = True
            self._context.log("Killed on request, ending the command")
            self._ask_to_end()
            return []

    def end(self) -> None:
        """End the process group, reap the command, close the descriptors."""
        self._signal_group(signal.SIGKILL)
        try:
            self._status = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        finally:
            for descriptor in (self._pidfd, *(output.descriptor for output in self._outputs)):
                os.close(descriptor)

    def result(self) -> dict[str, Any]:
        """The opcode's result, once the command has been reaped."""
        assert self._status is not None
        has_exited = self._status.si_code == os.CLD_EXITED
        stdout, stderr = self._outputs
        return {
            "exit_code": self._status.si_status if has_exited else None,
            "signal": None if has_exited else self._status.si_status,
            "duration": round(self._ended_at - self._started_at, 6),
            "stdout_tail": stdout.tail(),
            "stderr_tail": stderr.tail(),
            "stdout_bytes": stdout.size,
            "stderr_bytes": stderr.size,
            "truncated": stdout.is_truncated or stderr.is_truncated,
            "timed_out": self._timed_out,
        }

    def _is_over(self) -> bool:
        if self._is_running:
            return False
        assert self._limit is not None
        return not self._open or self._context.clock() >= self._limit

    def _patience(self) -> float | None:
        if self._limit is None:
            return None
        return min(max(0.0, self._limit - self._context.clock()), _WAIT_SECONDS_MAX)

    def _keep_limits(self) -> None:
        if not self._is_running or self._limit is None or self._context.clock() < self._limit:
            return
        if self._is_asked_to_end:
            self._signal_group(signal.SIGKILL)
            # SIGKILL was sent; a process in a system call may take long to end.
            self._limit = None
        else:
            self._timed_out = True
            self._context.log("Time limit reached, ending the command")
            self._ask_to_end()

    def _ask_to_end(self) -> None:
        self._is_asked_to_end = True
        self._signal_group(signal.SIGTERM)
        self._limit = self._context.clock() + GRACE_SECONDS

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._pid, number)
        except (ProcessLookupError, PermissionError):
            # The command has moved into another group, or the whole group has changed its user;
            # the command itself is still a child of this process.
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except (ProcessLookupError, PermissionError):
                return


def _environment(opcode: OpExec, context: OperationContext) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        "PATH": PATH,
        "HOME": "/",
        "LANG": "C.UTF-8",
        **inherited,
        **_variables_of_user(opcode),
        "GANGER_JOB_ID": str(context.job_id),
        "GANGER_OPCODE_INDEX": str(context.op_index),
        **({} if opcode.leave_running else {IDENTITY_VARIABLE: str(process_identity.own())}),
        **opcode.env,
    }


def _variables_of_user(opcode: OpExec) -> dict[str, str]:
    if opcode.user is None:
        return {}
    from . import as_user  # noqa: PLC0415 - as below

    return as_user.variables_of(opcode.user)


class _Inside:
    """Makes the opcode's directory the current one for a moment; the process has one thread."""

    def __init__(self, opcode: OpExec) -> None:
        self._directory = opcode.cwd or "/"
        self._back = -1

    def __enter__(self) -> None:
        self._back = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.chdir(self._directory)
        except OSError as error:
            os.close(self._back)
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise _NotStartedError(f"cwd {self._directory!r}: {reason}") from error

    def __exit__(self, *_: object) -> None:
        os.fchdir(self._back)
        os.close(self._back)


def _find_program(opcode: OpExec, variables: dict[str, str]) -> str:
    """The path of the program, as a shell would find it; relative to the current directory."""
    name = opcode.argv[0]
    if "/" in name:
        candidates = [name]
    else:
        directories = variables.get("PATH", PATH).split(":")
        candidates = [f"{directory or '.'}/{name}" for directory in directories]
    found = [path for path in candidates if os.path.isfile(path)]  # noqa: PTH113 - pathlib is slow to import
    for path in found:
        if os.access(path, os.X_OK):
            return path
    if found:
        raise _NotStartedError(f"{_named(name, found[0])} is not executable", _NOT_EXECUTABLE)
    if "/" in name and os.path.isdir(name):  # noqa: PTH112 - pathlib is slow to import
        raise _NotStartedError(f"{name!r} is a directory", _NOT_EXECUTABLE)
    raise _NotStartedError(f"{name!r} not found", _NOT_FOUND)


def _named(name: str, path: str) -> str:
    """The program as it was written, and the file that this means if it is written otherwise."""
    return repr(name) if name == path else f"{name!r} ({path})"


def _spawn(
    opcode: OpExec, variables: dict[str, str], context: OperationContext
) -> tuple[int, int, tuple[int, int]]:
    """Start the command: its process id, its pidfd, and the ends of its outputs to read from."""
    # The system gives out the lowest free numbers, and a pipe's writing end has the higher one. So
    # even in a process without standard descriptors, `dup2` overwrites no descriptor too early.
    descriptors: list[int] = []
    try:
        source = _standard_input(opcode, context)
        descriptors.append(source)
        reads, writes = zip(*(_pipe(descriptors) for _ in range(2)), strict=True)
        pid = _start(opcode, variables, (source, *writes))
        pidfd = _pidfd(pid)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    for descriptor in (source, *writes):
        os.close(descriptor)
    return pid, pidfd, reads


def _start(opcode: OpExec, variables: dict[str, str], standard: tuple[int, ...]) -> int:
    with _Inside(opcode):
        path = _find_program(opcode, variables)
        argv = [argument.encode() for argument in opcode.argv]
        encoded = {name.encode(): value.encode() for name, value in variables.items()}
        try:
            if opcode.user is not None:
                from . import as_user  # noqa: PLC0415 - for the few that have a user

                program = as_user.Program(path, argv, encoded)
                return as_user.spawn(opcode.user, program, standard, _inheritable())
            return os.posix_spawn(
                path,
                argv,
                encoded,
                file_actions=[
                    *((os.POSIX_SPAWN_DUP2, own, new) for new, own in enumerate(standard)),
                    *((os.POSIX_SPAWN_CLOSE, inherited) for inherited in _inheritable()),
                ],
                setpgroup=0,
                setsigmask=[],
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
        except OSError as error:
            raise _NotStartedError(
                f"{_named(opcode.argv[0], path)}: {_reason(error)}",
                None if error.errno in _NO_ROOM else _NOT_EXECUTABLE,
            ) from error


class _NotStartedError(OperationError):
    """The command could not be started; ``shell_code``: the exit code of a shell in this case."""

    def __init__(self, text: str, shell_code: int | None = None) -> None:
        details = [] if shell_code is None else [{"shell_code": shell_code}]
        super().__init__("OpExecError", f"{wording.NOT_STARTED}{text}", *details)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        # `_find_program` has found the file itself.
        return "the interpreter that its first line names does not exist"
    return os.strerror(error.errno) if error.errno else str(error)


def _pidfd(pid: int) -> int:
    try:
        return process_identity.open_pidfd(pid)
    except OSError:
        # Without a pidfd, nothing reports the command's end.
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _standard_input(opcode: OpExec, context: OperationContext) -> int:
    if opcode.stdin_file is not None:
        try:
            return context.open_input(opcode.stdin_file)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise _NotStartedError(f"its standard input {opcode.stdin_file}: {reason}") from error
    if (given := opcode.stdin_bytes()) is None:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    # A file in memory takes any amount at once; a pipe needs a writer while the command runs.
    descriptor = os.memfd_create("stdin")
    data = memoryview(given)
    while data:
        data = data[os.write(descriptor, data) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _pipe(descriptors: list[int]) -> tuple[int, int]:
    read, write = os.pipe()
    descriptors += (read, write)
    return read, write


def _inheritable() -> list[int]:
    """Descriptors that the command would inherit by mistake."""
    inheritable: list[int] = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib is slow to import
        descriptor = int(name)
        try:
            if descriptor > _LAST_STANDARD_DESCRIPTOR and os.get_inheritable(descriptor):
                inheritable.append(descriptor)
        except OSError:
            # The descriptor of the listing itself, closed by now.
            continue
    return inheritable
