"""Which locks jobs will take, and what it costs to start a job beside those that run.

Ganeti design: predictive queue (never released). Pure: no clock, no files.
"""
