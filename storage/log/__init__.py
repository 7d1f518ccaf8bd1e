"""What was acknowledged?

Checked records in numbered segments.

- `records`: what queue and configuration promise to remember. `logged_changes`: which changes of
  the configuration ``config.data`` may lack. Pure.
- `journal`: appends records, flushes them in groups, and says up to which position they are
  durable. `segment_ahead`: makes the next segment before it is needed. `cut`: deletes old ones.
- `segments`: the files. `checked_records`: one file, so that a torn record shows.
"""
