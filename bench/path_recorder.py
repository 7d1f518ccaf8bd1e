"""Records which files of Ganger a process runs, and serves that to `bench.paths`.

``python -m bench.path_recorder SOCKET DATA`` is a daemon that does so. A client sends lines to the
socket: ``begin`` forgets what was seen, ``end TIME`` is answered, in one line, with the files on
the way to the newest frame that was sent until then (seconds of the system's monotonic clock).
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from bench.lines import LAYERS, ROOT

_PREFIXES = tuple(f"{ROOT / layer}/" for layer in LAYERS)


_SOCKETS = str(ROOT / "transport" / "zmq")


class Recorder:
    """The files that each thread of this process has entered since `begin`, and when first."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._seen: dict[tuple[int, str], float] = {}
        self._sent: list[tuple[float, int]] = []

    def install(self) -> None:
        """Watch this thread, and all that start later."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def note(self, frame: FrameType, event: str, called: object) -> None:
        """A profile function."""
        name = frame.f_code.co_filename
        if event == "call":
            if (place := (threading.get_ident(), name)) not in self._seen:
                self._seen[place] = time.monotonic()
        elif event == "c_call" and name.startswith(_SOCKETS) and _is_send(called):
            self._sent.append((time.monotonic(), threading.get_ident()))

    def begin(self) -> None:
        """Forget what was seen."""
        self._forget()

    def files(self, until: float, thread: int | None = None) -> set[str]:
        """The files of Ganger, below the root of the checkout, that ``thread`` has entered by then.

        None: this thread.
        """
        own = threading.get_ident() if thread is None else thread
        seen = self._seen.copy()
        found = (name for (by, name), at in seen.items() if by == own and at <= until)
        return {str(Path(name).relative_to(ROOT)) for name in found if name.startswith(_PREFIXES)}

    def files_to_reply(self, until: float) -> set[str]:
        """The files that a thread has entered until it sent the newest frame before ``until``."""
        sent = [one for one in self._sent.copy() if one[0] <= until]
        return self.files(*sent[-1]) if sent else set()


def _is_send(called: object) -> bool:
    return getattr(called, "__name__", "") == "send"


def _serve(recorder: Recorder, path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            end, _ = listener.accept()
            with end, end.makefile("rw") as stream:
                for line in stream:
                    if line == "begin\n":
                        recorder.begin()
                        answer = ""
                    else:
                        answer = " ".join(sorted(recorder.files_to_reply(float(line.split()[1]))))
                    stream.write(f"{answer}\n")
                    stream.flush()


def main() -> None:
    """Run the daemon."""
    path, data = sys.argv[1:]
    recorder = Recorder()
    threading.Thread(target=_serve, args=(recorder, path), daemon=True).start()
    recorder.install()
    from ganger.cli.main import main as run  # noqa: PLC0415 - imported under the recorder

    run(["--data", data, "daemon", "--no-rapi"])


if __name__ == "__main__":
    main()
