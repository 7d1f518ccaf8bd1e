"""Hands out the stored output of jobs."""
