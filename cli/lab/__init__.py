"""How are traces recorded and played?

`ganger[lab]`: the core runs without it.

- `recording`: ``ganger queue record``. `replay`: ``ganger queue simulate --trace``.
"""
