"""Which components live, on which dispatcher, in which process, and what if one fails?

The components are `Supervisor` and `Authority`; `supervising` decides.
"""
