"""What is wrong in a data directory that no daemon uses, and how is it repaired?

- `survey`: reads the directory, and decides nothing. `checking`: finds what is wrong. Pure.
- `findings`: the table of what may be wrong, and who acts.
- `repairing`: what `--repair` may do.
"""
