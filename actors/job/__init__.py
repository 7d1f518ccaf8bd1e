"""How does one job run, in its own process?

There is one `Job` for each running job.
"""
