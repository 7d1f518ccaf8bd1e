"""What happens to each job, from its submission to the archive?

The single writer of jobs: `JobQueue`. Its parts are in `admission`, `answers`, `store` and
`durable`, too.

A part has its own state, and gets the parts that it needs. One that must know of the end or the
return of a job registers a listener with the `JobStore`. `HandOver` gives the jobs that the
scheduler chose to processes, `Lifecycle` follows jobs that have one (states, returns, exits,
deaths), and `Control` does what users ask of jobs: cancel, kill, priority, retry, archive.

The way of a job, which every change of the daemon has to keep whole:

1. Submission. The listener passes the request to the queue. `Admission` checks opcodes against
   their declarations, resolves ids that count back within the batch, and takes ids. At the end of
   the turn the queue sends the new jobs to the filter evaluator, which judges them while the disk
   works. The ids are answered when the records are in the journal, and flushed. The job files are
   written when no message waits.
2. Pending. The filter evaluator judges the job and passes it to the scheduler. There it waits for
   its dependencies (``waiting``, without a process or a run slot) or stands in line by priority,
   then by its weight (how likely it would wait for locks beside those that are held now: the lock
   manager tells each change), then by id. With hold-back, a job that is certain to wait for locks
   gets no run slot until that changes. Every event that may make a job ready leads to a scheduling
   pass; no job waits for a timer, but one that is held back starts at the latest when its age has
   left it no weight. The queue ends a job whose dependencies can no longer be met.
3. Hand-over. The scheduler names the job; the queue asks the executor for a process. The job's file
   says meanwhile that it is pending. A spare child of the fork server gets the job's number and one
   end of a socket pair. It creates and locks a lock file and sends its name; the queue writes that
   name into the job file; then the child gets the job and may go on. If the channel breaks before
   that, the child ends, and nothing has happened. From here on only the job's process writes the
   job's file.
4. Running. For each opcode: its dependencies, its locks (``waiting`` while it waits for them), then
   ``running``, durably, before the operation starts; then its result, durably. The executor passes
   messages between the process and the components. The queue records ``running`` only if the filter
   rules in force let the opcode start; if not, the job goes back to the queue or is canceled
   (docs/decisions/the-record-of-a-start-is-the-gate.md). An opcode that needs nothing but the
   configuration is carried out by the configuration store
   (docs/decisions/opcodes-of-the-configuration-run-in-its-store.md).
5. Final. The final status is durable, the process removes its lock file and leaves, its locks are
   free. The daemon learns of it from the message, from the end of the process (a pidfd), or from
   the file: any one is enough. For the scheduler, the job's run slot and its locks become free in
   one (docs/decisions/slot-and-locks-become-free-together.md).
6. The next job. If all opcodes declare that they leave their process clean, and the job has ended
   well, the process compares itself with its state before its first job (`processes.own_state`). If
   nothing has changed, it gives its lock file up and stays, for up to 100 jobs. The executor gives
   it the next such job, with a lock file and a hand-over of its own, as if it were a fresh process
   (docs/decisions/processes-serve-more-than-one-job.md).
7. Archive. On request the file moves to ``archive/``, in folders of 10,000.
"""
