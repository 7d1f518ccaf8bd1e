"""How are processes of the system reached, followed and ended?

What the executor and the processes of jobs need of the kernel.

- `fork_protocol`: the packets between daemon and fork server. `channels`: frames over the socket
  pair of a job's process.
- `descendants`: follows what a job starts, and ends what is left. `sessions`: the same after its
  process has died. `control_groups`: a group for each job, where the system allows that.
- `lock_file_owners`: which process holds a lock file.
- `own_state`: whether a process is as clean as before its job.
- `process_keeper`: keeps a process in which components of the daemon live.
- `machine`: what this machine says of itself. `host_figures`: the same for queries.
"""
