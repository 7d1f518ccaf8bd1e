"""How does one job run, in its own process?

There is one `JobActor` for each running job. It lives on the main thread of its process, without
pykka (docs/decisions/job-actor-without-pykka.md), and is the only writer of the job's file from the
hand-over to the final status.

- `process`: the life of the process: lock file, hand-over, the job, and the next one.
- `job`: the opcodes, one after the other. `running_job`: what its parts share.
- `conversation`: asks the daemon and hears it. `daemon_link`: the way to the daemon, and to its
  successor.
- `gate`: whether the filter rules let the next opcode start.
- `state_recorder`: makes the job's states durable, by the daemon's journal or in its file.
  `state_file`: writes that file.
- `job_context`: what operations may use. `job_log` and `output`: what they log and print.
- `store_operations`: opcodes that the configuration store carries out, and those that it locks.
"""
