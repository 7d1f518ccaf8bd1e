"""Writes docs/states.md from the tables in the code: run it after changing one of them."""

from __future__ import annotations

from pathlib import Path

from ganger.storage.jobs import jobs

HEAD = """\
# States

Written by `docs/make_states.py` from the tables in the code; a test compares the two.

## An opcode

From `TRANSITIONS` in `storage/jobs/jobs.py`. When the process of a job dies, every opcode becomes
`error`, also one that had finished (`lose process`, left out of the picture).

```mermaid
stateDiagram-v2
    [*] --> queued
"""

JOB = """\
```

## A job

Its status follows from those of its opcodes: the first opcode that failed, or that is or was being
canceled, decides; else the last one that is waiting or running; else the job is `success` if all
opcodes are, and `queued` otherwise. A job whose dependencies are not final is `waiting`, without
a process.

The fate of a job after a restart is in [reconciliation](reconciliation.md).
"""


def page() -> str:
    """The whole page."""
    arrows = [
        f"    {before} --> {after}: {event.replace('_', ' ')}\n"
        for (before, event), after in jobs.TRANSITIONS.items()
        if event is not jobs.OpcodeEvent.LOSE_PROCESS
    ]
    ends = [f"    {status} --> [*]\n" for status in jobs.JobStatus if status.is_final]
    return "".join([HEAD, *arrows, *ends, JOB])


if __name__ == "__main__":
    (Path(__file__).parent / "states.md").write_text(page(), encoding="utf-8")
