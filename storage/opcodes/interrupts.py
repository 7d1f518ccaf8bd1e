"""Tells Ctrl-C from a `KeyboardInterrupt` that a user's code raises itself. Raises nothing."""

from __future__ import annotations

import signal


def is_ctrl_c(error: BaseException) -> bool:
    """Whether the error may be Ctrl-C, which ends a command.

    Python raises it only while SIGINT has no other handler. The daemon, its other processes and
    those of jobs handle that signal themselves, and it raises nothing there: a plug-in that raises
    `KeyboardInterrupt` has failed, as with any other error.
    """
    is_raised = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return is_raised and isinstance(error, KeyboardInterrupt)
