"""Who lives: lock files, and the identities of processes?

A process locks a file of its own when it begins and holds the lock for life. A process that can get
a shared lock on that file, or does not find it, looks at the identity in the file's name: the pid
of its owner, when that started, and in which boot of the machine. The owner is dead only if no
process has this identity, or if the process says (in ``/proc/<pid>/comm``) that it serves another
job by now. So a deleted file frees no lock, and a number that was given to another process keeps
none. A stopped process (SIGSTOP) is alive and keeps its locks. The end of a process makes the
daemon look at once. Lock files lie in ``livelocks/`` of the data directory
(docs/decisions/proof-of-life.md).

The queue directory itself is locked together with ``queue/lock``, so a deleted lock file lets no
second daemon in. A daemon whose queue directory was deleted, moved away or replaced has lost hold
of it: it ends at once (exit code 70), and writes and deletes nothing more, because what lies there
may be the next daemon's. Jobs that run go on.

- `lock_files`: makes, locks and judges them. `process_identity`: who has such an identity.
- `directory_locks`: the lock on a queue directory.
- `parent_death`: ends a process together with the one that has started it.
"""
