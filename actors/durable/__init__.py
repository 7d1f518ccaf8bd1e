"""What have queue and configuration promised to remember, and what is on disk of it?

Both append to one log (docs/decisions/one-log.md). Each record has a position, and what depends on
it (a reply, an announcement) waits until `Ledger.commit` has found that position durable. On one
machine that is a flush in the same turn. A replicated log makes it later: then the effect waits for
the turn that a message begins, and whoever hung it there learns of nothing.

- `ledger`: what was promised, and the `effects` that wait. `recovered`: what a start finds for it.
- `lazy_records`: what goes into the log with a flush that is made for others.
- `log_segments`: when a new segment of the log begins, and when older ones go.
- `change_log`: the changes of the configuration.
- `file_writer`: writes the files of jobs, and keeps each state that is newer than its file.
- `purged_jobs`: the jobs that went for good, and that a state in the log must not bring back.
- `disk_state`: whether the disk takes writes.

What is flushed, by whom, and when:

- a submission: by the queue (log, then job files), before the ids are answered; its large input
  (``queue/spool/``) before that. A node's task is known at once, and flushed with its start, or
  after a moment (`LAZY_SECONDS`);
- a new priority, or a cancellation of a pending job: by the queue (log, then job file), before the
  answer;
- ``running`` before the operation starts, and the final status before anybody is told: by the queue
  (log), to which `job.state_recorder` sends the state; a result with the next of these;
- the final status of a node's task: with the next flush, or after a moment (`LAZY_SECONDS`). Its
  master records the end; a task whose end a loss of power has taken is one that was running then;
- output of commands (``queue/spool/job-<id>-output``): by the job's process, when its opcode ends,
  before the result;
- a change of the configuration: by the queue (log) for the configuration store, before it is
  visible or answered; later the store writes ``config.data``;
- a temporary reservation (``tempres.data``): by the configuration store, before it is answered;
- not flushed are the name of a job's lock file, which the queue writes into the job file and which
  matters only while the process lives; a lock granted or released (``locks.journal``, by the lock
  manager), which matters only while its owner lives; and log lines by themselves.

What is written but not flushed survives the daemon, and every process, but not the loss of the
machine; and after that no process lives either. docs/decisions/ goes into each case.

A job's state goes through the daemon's log because there many jobs share one flush; its process
then writes the file without a flush of its own. Without a daemon, or when the state is large, the
process flushes its file itself. Each state has a serial number, so that an older one never wins.

A failed flush is a failed write: nobody is told that it worked, the daemon takes no changes
(``ganger status`` says so), tries the disk again, and goes on when it works. It does not die of it.
A flush that goes well is not believed either: before a segment of the journal goes, the job files
that it covers are read back from the disk, past the page cache
(docs/decisions/what-a-failed-flush-covered-is-written-anew.md).
"""
