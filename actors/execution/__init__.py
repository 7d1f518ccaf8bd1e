"""Which process runs a job, and what does its end mean?

The component is `Executor`; `watching` decides.

`Executor` makes processes with the `fork_servers`, and passes messages between jobs and components.
`Reaper` follows each process to its end and reports it, `IdleProcesses` keeps those that may serve
another job, and `Children` knows the descriptors of all.

A fork server holds no state. Before it forks, it imports all that a job needs and makes dry runs of
jobs (`prewarming`). When it fails, the supervisor has the executor start another one, and
hand-overs that were not confirmed begin anew. Jobs that run do not notice.
"""
