"""`job logs` shows what an operation has logged where it was logged, and its traceback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.harness import GANGER, Daemon

from ganger import Client
from ganger.storage.jobs.job_views import LogLine, OutputChunk

PLUG_IN = """
from ganger import Opcode

class OpTelling(Opcode, kw_only=True):
    op_id = "OP_TELLING"
    words: list[str]

    def run(self, context):
        for word in self.words:
            if word == "fail":
                raise ValueError("boom")
            if word.startswith("log"):
                context.log(word)
            else:
                print(word, flush=True)
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("telling")
    about = folder / "packages" / "telling-1.dist-info"
    about.mkdir(parents=True)
    (about.parent / "telling.py").write_text(PLUG_IN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: telling\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[ganger.opcodes]\ntelling = telling:OpTelling\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.fspath(about.parent))
        with Daemon(folder) as daemon:
            yield daemon


def told(daemon: Daemon, *words: str) -> list[str]:
    """The lines of both streams of `job logs`, as they came."""
    command = [*GANGER, "--data", str(daemon.data), "job", "logs", *words]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def ended(daemon: Daemon, *ops: list[str]) -> int:
    with daemon.client() as client:
        job_id = client.submit([{"OP_ID": "OP_TELLING", "words": words} for words in ops])
        client.wait(job_id, timeout=60)
        return job_id


SPLIT = (["log 1", "one", "log 2", "log 3", "two"], ["log 4"], ["three", "log 5", "fail"])
WHOLE = ["log 1", "one", "log 2", "log 3", "two", "log 4", "three", "log 5"]


def test_messages_and_tracebacks_are_in_their_place(daemon: Daemon) -> None:
    job_id = str(ended(daemon, *SPLIT))
    for follow in ((), ("--follow",)):
        lines = told(daemon, job_id, *follow)
        assert lines[:8] == WHOLE
        assert lines[8] == "Traceback (most recent call last):"
        assert lines[-1] == "ValueError: boom"
    assert told(daemon, job_id, "--stream", "stdout") == ["one", "two", "three"]
    assert told(daemon, job_id, "--op", "1") == ["log 4"]
    assert told(daemon, job_id, "--op", "0") == WHOLE[:5]


def test_the_last_lines_come_with_what_was_logged_among_them(daemon: Daemon) -> None:
    job_id = str(ended(daemon, ["one", "log 1", "two", "log 2", "three", "log 3"]))
    assert told(daemon, job_id, "--tail", "1") == ["three", "log 3"]
    assert told(daemon, job_id, "--tail", "2") == ["two", "log 2", "three", "log 3"]
    assert told(daemon, job_id, "--tail", "0") == []
    silent = str(ended(daemon, ["log 1", "log 2"]))
    assert told(daemon, silent, "--tail", "1") == ["log 2"]
    assert told(daemon, silent) == ["log 1", "log 2"]


def test_a_job_that_runs_is_followed_from_its_first_message_on(
    daemon: Daemon, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with daemon.client() as client:
        before = {"OP_ID": "OP_TELLING", "words": ["log 1", "one", "log 2"]}
        waits = {"OP_ID": "OP_EXEC", "argv": ["cat", str(pipe)]}
        after = {"OP_ID": "OP_TELLING", "words": ["log 3", "three"]}
        job_id = client.submit([before, waits, after])
        following = client.logs(job_id, follow=True, messages=True, timeout=60)
        found: list[str] = []
        while "log 2" not in found:
            found.append(text(next(following)))
        pipe.write_text("two\n")
        found += [text(part) for part in following]
    assert [one for one in found if one.startswith("log")] == ["log 1", "log 2", "log 3"]
    assert "".join(one for one in found if not one.startswith("log")) == "one\ntwo\nthree\n"


def text(part: OutputChunk | LogLine) -> str:
    return part.text if isinstance(part, LogLine) else part.data.decode()


def test_by_itself_the_verb_gives_out_output_alone(daemon: Daemon) -> None:
    job_id = ended(daemon, ["log 1", "one", "log 2", "two"])
    with Client(daemon.data) as client:
        for follow in (False, True):
            chunks = list(client.logs(job_id, follow=follow))
            assert b"".join(chunk.data for chunk in chunks) == b"one\ntwo\n"
            assert not any(chunk.is_mark for chunk in chunks)
