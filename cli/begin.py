"""Where ``ganger`` begins: an interruption is one line, also while the rest is being imported.

Imports nothing at first, so that the moment in which Python itself answers Ctrl-C, with a
traceback, is as short as it can be.
"""

from __future__ import annotations

# `signal` itself imports what takes time.
import _signal  # type: ignore[import-not-found]
import os

_INTERRUPTED_EXIT_CODE = 130


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # A shell lets what it starts in the background ignore Ctrl-C; that stays so.
    is_interrupted = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    if is_interrupted:
        _signal.signal(_signal.SIGINT, _end)
    from .main import main as run  # noqa: PLC0415 - not before the signal is taken care of

    try:
        try:
            if is_interrupted:
                _signal.signal(_signal.SIGINT, _signal.default_int_handler)
            run()
        finally:
            # What is left is to end: nothing here would answer a second interruption.
            if is_interrupted:
                _signal.signal(_signal.SIGINT, _end)
    except KeyboardInterrupt:
        _end()


def _end(*_: object) -> None:
    """End at once: nothing has been done yet, or everything."""
    os.write(2, b"ganger: interrupted\n")
    os._exit(_INTERRUPTED_EXIT_CODE)


if __name__ == "__main__":
    main()
