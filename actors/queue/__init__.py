"""What happens to each job, from its submission to the archive?

`JobQueue` is the single writer of jobs. Its parts are in `admission`, `answers`, `store` and
`durable`, too. A part has its own state, and gets the parts that it needs. One that must know of
the end or the return of a job registers a listener with the `JobStore`.

- `job_queue`: the component: its parts, which method of which part handles a message, and what must
  be there before that.
- `choices`: what the scheduler chose. It has jobs started, ends those that can never start, takes
  choices back, and obeys the limit of running jobs.
- `hand_over`: gives a chosen job to its process. `reusing`: whether the process may serve several.
- `lifecycle`: jobs that have a process: states, returns, exits, deaths.
- `control`: what users ask of jobs: cancel, kill, priority, retry, archive. `purging`: jobs that go
  for good.

The way of a job, which every change of the daemon has to keep whole:

1. Submission. The listener passes the request to the queue; before the first filter rules are
   there, it waits. `Admission` looks whether it repeats one under the same key, whether the disk
   takes writes and whether the queue is drained. It checks opcodes against their declarations,
   resolves ids that count back within the batch, has the rules in force reject jobs, and takes ids.
   Up to ``SUBMITTED_AT_ONCE`` jobs are sent to the filter evaluator at the end of the turn, which
   judges them while the disk works; if the flush fails, the others hear that they are canceled.
   More jobs are announced in slices, once they are durable. The ids are answered when the records
   are in the journal, flushed, and the jobs known. The job files are written when no message waits.
2. Pending. The filter evaluator judges the job and passes it to the scheduler. There it waits for
   its dependencies (``waiting``, without a process or a run slot) or stands in line by priority,
   then by its weight (how likely it would wait for locks beside those that are held now: the lock
   manager tells each change), then by id. With hold-back, a job that is certain to wait for locks
   gets no run slot until that changes. Every event that may make a job ready leads to a scheduling
   pass; no job waits for a timer, but one that is held back starts at the latest when its age has
   left it no weight. A job whose dependencies can no longer be met is found by the scheduler
   (`scheduling.scheduled_jobs`), named in `JobsChosen`, and ended by `choices`.
3. Hand-over. The scheduler names the job; the queue asks the executor for a process. The job's file
   says meanwhile that it is pending; the journal gets the state anew if its newest segment lacks
   it. A spare child of the fork server gets the job's number and one end of a socket pair. It
   creates and locks a lock file and sends its name; the queue writes that name into the job file,
   unflushed; then the child gets the job and may go on. If the channel breaks before that, the
   child ends, and nothing has happened. From here on only the job's process writes the job's file.
4. Running. For each opcode: its dependencies, its locks (``waiting`` while it waits for them), then
   ``running``, durably, before the operation starts. Its result becomes durable with the next
   ``running``, or with the final status. `job.state_recorder` sends each such state to the queue,
   whose journal flushes it, and then writes the job's file, unflushed. The executor passes messages
   between the process and the components. The queue records ``running`` only if the filter rules in
   force let the opcode start; if not, the job goes back to the queue or is canceled
   (docs/decisions/the-record-of-a-start-is-the-gate.md). An opcode that needs nothing but the
   configuration is carried out by the configuration store
   (docs/decisions/opcodes-of-the-configuration-run-in-its-store.md). The process asks for the
   dependencies of a later opcode (`AskDependencies`): a failed one ends the job there.
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
8. Purge. On request an ended job goes for good, archived or not, with its output and input. The log
   has that first, so a start removes what a crash has left (`durable.purged_jobs`).
"""
