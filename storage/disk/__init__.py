"""How are files written durably, where do they lie, and whose are they?

- `documents`: reads whole files, and replaces them atomically. `line_files`: files of lines.
  `quarantine`: files put aside.
- `paths`: where everything lies. `run_directory`: where the local socket lies if nowhere else.
  `ownership`: whose a directory is.
- `reserve`: what is kept free on the disk. `disk_parts`: what takes how much of it.
- `file_systems`: whether the file system will do. `descriptors`, `file_sizes`, `free_memory`: what
  the system gives a daemon, and how it is shared out.

What lies in a data directory:

- ``queue/job-<id>``: a job, in Ganeti's JSON; what Ganger adds are extra keys, and unknown ones
  stay. ``queue/archive/<n>/``: jobs that ended and were archived, with their input and output.
- ``archive.index/<n>``: what listings show of the jobs in ``queue/archive/<n>``; made anew when it
  is lost (`storage.queue_files.archive_index`).
- ``queue/journal/``: what was acknowledged and may not be in the job files yet.
- ``queue/spool/``: standard input above 16 KiB, before the id is answered, and the output of
  commands (docs/decisions/output-lies-beside-the-job.md).
- ``queue/serial``, ``queue/version``, ``queue/lock``: as in Ganeti; the lock keeps a second daemon
  out. ``queue/reserve``, ``queue/reserve.start``: space that the queue and a start give up when the
  disk is full.
  ``queue/output-limits``: what jobs may store of their output, if that is not as usual.
  ``queue/quarantine/``: what a start or ``ganger fsck --repair`` has put aside.
- ``locks.data``, ``locks.journal``: who holds which lock, who waits; and the changes since.
- ``livelocks/``: lock files, which say what processes live; spares for the next ones.
- ``config.data``: configuration and filter rules, in Ganeti's schema; the journal has the changes
  since. ``config.data.copy``: a daemon starts from it if the first cannot be read.
  ``config.journal/``: where earlier versions kept the changes; keeps these versions out.
- ``config.history``: who changed what of the configuration, when and why: a JSON object a line.
- ``tempres.data``: MAC addresses, IP addresses and the like that jobs have reserved, as in Ganeti.
- ``ssconf/``: the configuration as plain lines, for scripts, as in Ganeti; nobody here reads it.
- ``keys/``: keys of the remote listener: the daemon's own, and those it knows. ``rapi/users``,
  ``rapi.pem``: the users of the remote API; its key and certificate.
- ``daemon.log``: the log, one JSON object a line. ``daemon.out``: what else was printed.
- ``daemon.json``: where the running daemon is, for clients. ``daemon.options``: the options of the
  last one, with which `ganger up` starts the next.

Files have the mode 640 and folders 750, less the umask. Locks, lock files, keys and users are for
the daemon's user alone, and so is the folder of the local socket. tests/system/test_traced_life.py
traces a daemon and compares: secrets, modes, the writers of each path, and the order in which it
starts, begins anew and stops.

The local socket lies in a folder of its own under ``/dev/shm``, where that exists: its path is
short there, and it proves nothing. Every user may make names there. If the one that the folder
would have is taken by anything but the directory of the data directory's owner, the folder is
``run`` in the data directory, and the log says so; clients decide by the same rule (`paths`). If a
socket's path would be too long there, ``run`` is a link to a folder under ``/dev/shm`` with a name
that nobody could know before (`run_directory`). The daemon looks once a second whether the socket,
``queue/lock`` and ``daemon.json`` are there, and puts them back. While jobs run without a daemon
the folder stays, because they look there for the next one.
"""
