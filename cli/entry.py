"""Entry point of ``ganger``: Ctrl-C prints one line, even while the other modules are imported.

Until our handler is set, Python answers Ctrl-C with a traceback; so this imports next to nothing.
"""

from __future__ import annotations

# Importing `signal` takes longer.
import _signal  # type: ignore[import-not-found]
import os

_INTERRUPTED_EXIT_CODE = 130


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # A shell starts background commands with Ctrl-C ignored; that stays so.
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
            # The command has ended: a further Ctrl-C only ends the process.
            if is_interrupted:
                _signal.signal(_signal.SIGINT, _end)
    except KeyboardInterrupt:
        _end()


def _end(*_: object) -> None:
    """End at once: the command has not begun, or has ended."""
    os.write(2, b"ganger: interrupted\n")
    os._exit(_INTERRUPTED_EXIT_CODE)


if __name__ == "__main__":
    main()
