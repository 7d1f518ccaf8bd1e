"""Which process runs a job, and what does its end mean?

The component is `Executor`; `watching` decides.
"""
