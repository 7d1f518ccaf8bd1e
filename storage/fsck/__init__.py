"""Checks a data directory that no daemon uses, and repairs it."""
