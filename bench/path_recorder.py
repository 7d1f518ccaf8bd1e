"""Records which files of Ganger a process runs, and serves that to `bench.paths`.

``python -m bench.path_recorder SOCKET DATA`` is a daemon that does so. A client sends lines to the
socket: ``begin`` forgets what was seen, ``end TIME`` is answered with the files that were entered
until then (seconds of the system's monotonic clock), in one line.
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


class Recorder:
    """The files that any thread of this process has entered since `begin`, and when first."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def install(self) -> None:
        """Watch this thread, and all that start later."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (name := frame.f_code.co_filename) not in self._seen:
            self._seen[name] = time.monotonic()

    def begin(self) -> None:
        """Forget what was seen."""
        self._seen = {}

    def files(self, until: float) -> set[str]:
        """The files of Ganger, below the root of the checkout, that were entered until then."""
        seen = self._seen.copy()
        found = (name for name, at in seen.items() if at <= until and name.startswith(_PREFIXES))
        return {str(Path(name).relative_to(ROOT)) for name in found}


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
                        answer = " ".join(sorted(recorder.files(float(line.split()[1]))))
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
