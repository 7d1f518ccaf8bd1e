"""What is said of jobs: whole states, waits, reasons, estimates?

`JobQueries` answers queries for fields of jobs, a page at a time. `ChangeWaits` answers clients
that wait for a change of a job, at the end of the turn that changed it
(docs/decisions/waits-are-looked-at-when-their-job-changes.md). `Diagnosis` has what needs the
scheduler or the lock manager: why a job waits, and simulations. `Estimating` learns the run times
of opcodes, and sends what a plan of starts and ends needs. Listings and watches are in `store`.
"""
