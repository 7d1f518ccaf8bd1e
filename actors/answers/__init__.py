"""What is said of jobs: whole states, waits, reasons, estimates?

Listings, reads of whole jobs and watches are in `store.queue_reader`.

- `job_queries`: answers queries for fields of jobs, a page at a time.
- `change_waits`: answers clients that wait for a change of a job, at the end of the turn that
  changed it (docs/decisions/waits-are-looked-at-when-their-job-changes.md). `job_state`: what such
  a client gets.
- `diagnosis`: what needs the scheduler or the lock manager: why a job waits, and simulations.
  `explaining`: the reasons in order, and their words. Pure.
- `estimating`: learns the run times of opcodes, and sends what a plan of starts and ends needs.
"""
