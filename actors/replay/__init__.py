"""Plays traces of jobs against the scheduler and the lock state in virtual time: pure."""
