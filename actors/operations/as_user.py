"""A command that runs as another user: forked and changed here, since `posix_spawn` cannot.

Imported when an opcode names a user: the others must not pay for it.
"""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ...storage import wording
from ...storage.opcodes import OperationError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ERROR_BYTES = 16


def account(user: str) -> pwd.struct_passwd:
    """The user's entry; `OperationError`: there is none, or we cannot become that user."""
    try:
        found = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError) as error:
        raise _refused(f"this machine has no user {user!r}") from error
    if found.pw_uid != os.geteuid() and os.geteuid() != 0:
        raise _refused(f"the daemon is not root, and cannot run it as user {user!r}")
    return found


def variables_of(user: str) -> dict[str, str]:
    """What the environment of this user's commands says of the user."""
    found = account(user)
    return {"HOME": found.pw_dir, "LOGNAME": found.pw_name, "USER": found.pw_name}


class Program(NamedTuple):
    """What is to run."""

    path: str
    argv: list[bytes]
    variables: Mapping[bytes, bytes]


def spawn(user: str, program: Program, standard: Sequence[int], inherited: Sequence[int]) -> int:
    """Start the program in a process group of its own; its process id.

    ``standard``: what becomes descriptor 0, 1 and 2. ``inherited``: what it must not inherit.
    Raises the `OSError` of the step that failed, and `OperationError` as `account`.
    """
    who = account(user)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for descriptor in inherited:
                os.set_inheritable(descriptor, False)  # noqa: FBT003
            _become(who, program, standard)
        except OSError as error:
            os.write(write, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(write)
    try:
        # The end of the pipe is the start of the program, which does not inherit it.
        problem = os.read(read, _ERROR_BYTES)
    finally:
        os.close(read)
    if problem:
        os.waitpid(pid, 0)
        raise OSError(int(problem), os.strerror(int(problem)))
    return pid


def _become(who: pwd.struct_passwd, program: Program, standard: Sequence[int]) -> NoReturn:
    os.setpgid(0, 0)
    for new, own in enumerate(standard):
        os.dup2(own, new)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if os.geteuid() == 0:
        os.initgroups(who.pw_name, who.pw_gid)
        os.setgid(who.pw_gid)
        os.setuid(who.pw_uid)
    os.execve(program.path, program.argv, program.variables)  # noqa: S606 - as the opcode says


def _refused(text: str) -> OperationError:
    return OperationError("OpExecError", f"{wording.NOT_STARTED}{text}")
