"""The single writer of jobs."""
