"""What is true of each job: its row in memory, and how a start reads it?

Every part of the queue stands on the `JobStore`.

- `job_store`: the live jobs in memory and on disk, their transitions and ends. `job_table`: their
  rows. `job_rows`: one row. `job_classes`: makes a row from a job; jobs with the same parameters
  share most of it.
- `queue_reader`: listings, reads of whole jobs and watches. Changes nothing. `job_search`: finds
  jobs by names and conditions, live and archived. `subscriptions`: the watches.
- `announcements`: what the filter evaluator and the scheduler learn about jobs. `ages`: when jobs
  came.
- `endings`: how jobs have ended, for those that depend on them.
- `start_gate`: whether the next opcode may start under the rules in force.
- `recovery`: reads the directory into a value (`loaded`). `reconciling`: what becomes of each job.
  Pure. `lazy_rows`: what a start has not read yet.

Restart and recovery. `recovery` replays the journal onto the job files, and the table of
`reconciling` is in docs/reconciliation.md. Of a pending job it reads only what the whole queue
needs. So after a kill of the daemon:

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
