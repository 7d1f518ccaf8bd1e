"""What has the queue promised to remember, and what is on disk of it?

`Ledger` has the journal, its segments and what waits for the next flush. `FileWriter` writes the
files of jobs, and keeps each state that is newer than its file. `ChangeLog` appends the changes of
the configuration to the same log (docs/decisions/one-log.md).

What is flushed, and when:

- a submission (journal, then job files): before the ids are answered;
- a new priority, or a cancellation of a pending job (journal, then job file): before the answer;
- ``running``, results and the final status (journal, then job file): before the operation starts,
  before the job goes on, before anybody is told;
- output of commands (``queue/spool/job-<id>-output``): when its opcode ends, before the result;
- a change of the configuration (journal, later ``config.data``): before it is visible or answered;
  a temporary reservation (``tempres.data``): before it is answered;
- not flushed are the name of a job's lock file, which matters only while the process lives, a lock
  granted or released (``locks.journal``), which matters only while its owner lives, and log lines
  by themselves.

What is written but not flushed survives the daemon, and every process, but not the loss of the
machine; and after that no process lives either. docs/decisions/ goes into each case.

A job's state goes through the daemon's journal because there many jobs share one flush; its file is
then written without a flush of its own. Without a daemon, or when the state is large, the process
flushes its file itself. Each state has a serial number, so that an older one never wins.

A failed flush is a failed write: nobody is told that it worked, the daemon takes no changes
(``ganger status`` says so), tries the disk again, and goes on when it works. It does not die of it.
A flush that goes well is not believed either: before a segment of the journal goes, the job files
that it covers are read back from the disk, past the page cache
(docs/decisions/what-a-failed-flush-covered-is-written-anew.md).
"""
