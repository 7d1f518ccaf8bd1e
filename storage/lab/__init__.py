"""What does a trace of jobs say, and where does one come from?

`ganger[lab]`: the core runs without it.
"""
