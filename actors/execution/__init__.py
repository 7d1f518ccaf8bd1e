"""Which process runs a job, and what does its end mean?

The component is `Executor`; `watching` decides.

`Executor` makes processes with the `fork_servers`, and passes messages between jobs and components.
`Reaper` follows each process to its end and reports it, `IdleProcesses` keeps those that may serve
another job, and `Children` knows the descriptors of all.

A fork server holds no state. It imports all that a job needs before it forks, and its spare
children warm up, if there is time, by a dry run of a job. When it fails, the supervisor has the
executor start another one, and hand-overs that were not confirmed begin anew. Jobs that run do not
notice.
"""
