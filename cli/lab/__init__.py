"""How are traces recorded and played?

`ganger[lab]`: the core runs without it.
"""
