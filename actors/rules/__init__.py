"""Which filter rule applies to a job."""
