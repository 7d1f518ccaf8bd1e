"""What is true of each job: its row in memory, and how a start reads it?

`JobStore` has the live jobs in memory and on disk, their transitions and ends; every part of the
queue stands on it. Its `JobTable` has a small row for each live job; jobs with the same parameters
share most of it (`job_classes`). `QueueReader` answers listings, reads of whole jobs and watches,
and changes nothing. `Announcements` has what the filter evaluator and the scheduler learn about
jobs. `StartGate` decides whether the next opcode may start under the rules in force.

Restart and recovery. `recovery` reads the directory into a value (`loaded`): it replays the journal
onto the job files, and `reconciling` decides what becomes of each job (its table is in
docs/reconciliation.md). Of a pending job it reads only what the whole queue needs: `lazy_rows`
leaves the rest for later. So after a kill of the daemon:

- Jobs that run go on, as far as the locks they hold reach. They find the new daemon's socket by
  themselves, attach to it and say how far they are.
- A job's process that was killed has freed its locks at once. Its job ends in an error, because the
  daemon cannot know how far the operation came; it starts again only if it had not begun. What the
  process left running is ended, because its locks protect it no longer.
- If the machine was lost, the journal holds everything that was acknowledged. A torn end of it was
  never acknowledged, and is cut. A torn job file that the journal cannot repair is put aside and
  named in ``ganger status``, never dropped in silence.

``make demo`` shows all this; with ``--chaos``, docs/examples/demo.py makes parts fail in the middle
of it, and every step has still started exactly once.
"""
