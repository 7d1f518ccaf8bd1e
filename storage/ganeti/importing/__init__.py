"""What becomes of a state directory of Ganeti?

Reads it, decides what becomes of its jobs, writes ours. The source is never changed.

- `source`: what the directory holds. `read_only_source`: reads it without a trace. `parts`:
  configuration and users. `queues`: its jobs.
- `import_decision`: what becomes of a job. Pure.
- `building`: makes a data directory of it all, or nothing.
"""
