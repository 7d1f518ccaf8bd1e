"""Gives jobs processes."""
