"""What does a trace of jobs say, and where does one come from?

`ganger[lab]`: the core runs without it.

- `traces`: what a trace holds. `recording`: makes one of the jobs of a queue. `generating`: makes
  one up.
"""
