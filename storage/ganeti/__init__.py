"""What of Ganeti is on disk, and what do its programs change there?

- `modifications`: what WConfD's methods change. `reservations`: ``tempres.data``.
- `ssconf`: what the ssconf files hold. `ssconf_files`: the files.
- `defaults` and `parameters`: the value of what an object does not have itself.
"""
