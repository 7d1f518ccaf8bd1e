"""Writes docs/states.md from the tables in the code: run it after changing one of them."""

from __future__ import annotations

from pathlib import Path

from ganger.actors import reconciling
from ganger.storage import jobs

HEAD = """\
# States

Written by `docs/make_states.py` from the tables in the code; a test compares the two.

## An opcode

From `TRANSITIONS` in `storage/jobs.py`. When the process of a job dies, every opcode becomes
`error`, also one that had finished (`lose process`, left out of the picture).

```mermaid
stateDiagram-v2
    [*] --> queued
"""

JOB = """\
```

## A job

Its status follows from those of its opcodes, in order: the first one that failed or is being, or
was, canceled decides; else the last one that is waiting or running; else `success` if all are, and
`queued` otherwise. A job whose dependencies are not final is `waiting`, without a process.

## What becomes of a job that is found after a restart

From `TABLE` in `actors/reconciling.py`. Untouched: every opcode is queued, or waits for
dependencies without a process. What the lock file says decides who lives, nothing else.

| the job | its process | what is done |
|---|---|---|
"""

DONE = {
    reconciling.Fate.KEEP: "kept as it is",
    reconciling.Fate.ADOPT: "adopted: its process is watched and believed",
    reconciling.Fate.ENQUEUE: "pending (again)",
    reconciling.Fate.FAIL: "ends in `error`, which says that its process died and when",
}


def page() -> str:
    """The whole page."""
    arrows = [
        f"    {before} --> {after}: {event.replace('_', ' ')}\n"
        for (before, event), after in jobs.TRANSITIONS.items()
        if event is not jobs.OpcodeEvent.LOSE_PROCESS
    ]
    ends = [f"    {status} --> [*]\n" for status in jobs.JobStatus if status.is_final]
    rows = [
        f"| {progress.value} | {life.value} | {DONE[fate]} |\n"
        for (progress, life), fate in reconciling.TABLE.items()
    ]
    return "".join([HEAD, *arrows, *ends, JOB, *rows])


if __name__ == "__main__":
    (Path(__file__).parent / "states.md").write_text(page(), encoding="utf-8")
