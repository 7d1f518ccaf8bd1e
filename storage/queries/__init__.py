"""What may readers see of the answers to queries?

- `job_masks`: what they must not see of jobs.
"""
