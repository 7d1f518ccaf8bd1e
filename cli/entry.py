"""Entry point of ``ganger``: Ctrl-C prints one line, even while the other modules are imported.

Until our handler is set, Python answers Ctrl-C with a traceback; so this imports next to nothing.
Most commands are short: no collector walks through the modules while they load, and nobody takes
them apart at the end, which was a fifth of the processor time of `ganger job list`.
"""

from __future__ import annotations

# Importing `signal` takes longer.
import _signal  # type: ignore[import-not-found]
import gc
import os
import sys

_INTERRUPTED_EXIT_CODE = 130
_COLLECTOR_THRESHOLDS = (50_000, 10, 10)
"""For commands that last: how many new objects make a collection."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # A shell starts background commands with Ctrl-C ignored; that stays so.
    is_interrupted = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    if is_interrupted:
        _signal.signal(_signal.SIGINT, _end)
    gc.disable()
    from .main import main as run  # noqa: PLC0415 - not before the signal is taken care of

    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    gc.enable()

    try:
        try:
            if is_interrupted:
                _signal.signal(_signal.SIGINT, _signal.default_int_handler)
            run()
        finally:
            # The command has ended: a further Ctrl-C only ends the process.
            if is_interrupted:
                _signal.signal(_signal.SIGINT, _end)
    except KeyboardInterrupt:
        _end()
    except SystemExit as ended:
        _leave(ended)


def _end(*_: object) -> None:
    """End at once: the command has not begun, or has ended."""
    os.write(2, b"ganger: interrupted\n")
    os._exit(_INTERRUPTED_EXIT_CODE)


def _leave(ended: SystemExit) -> None:
    """End with its code; as ever, if threads are to be waited for, or what was printed is stuck."""
    import threading  # noqa: PLC0415 - by now it is loaded

    if threading.active_count() == 1 and isinstance(ended.code, int):
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            raise ended from None
        os._exit(ended.code)
    raise ended


if __name__ == "__main__":
    main()
