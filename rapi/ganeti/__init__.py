"""Which resources do only Ganeti's clients need?

- `table`: all of them, for an entry point. `general`: the API and the cluster as a whole.
- `groups`, `instances`, `networks`, `nodes`, `query`, `tags`: by noun. `noun_rows`: what they read.
  `submitting`: how they make an opcode of a request.
"""
