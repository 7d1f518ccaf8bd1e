"""How would other orders do?

Plays traces against the scheduler's and the locks' own decisions, in virtual time: pure.
"""
