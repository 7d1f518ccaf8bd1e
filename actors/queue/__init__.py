"""What happens to each job, from its submission to the archive?

The single writer of jobs: `JobQueue`. Its parts are in `admission`, `answers`, `store` and
`durable`, too.
"""
