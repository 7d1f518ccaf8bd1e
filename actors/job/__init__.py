"""How does one job run, in its own process?

There is one `Job` for each running job.

It lives on the main thread of its process, without pykka
(docs/decisions/job-actor-without-pykka.md). `process` takes the job over, `job` runs its opcodes,
`conversation` asks the daemon and hears it, `gate` obeys the filter rules, `state_recorder` makes
states durable, `store_operations` asks the configuration store to carry opcodes out, and operations
get a `job_context`.
"""
