"""Which submissions are taken in, and what is stored of them?

`Admission` takes submissions in, a large one in slices: checks, rejecting rules, keys, the drain.
"""
