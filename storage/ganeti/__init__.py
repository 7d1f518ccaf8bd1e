"""What of Ganeti is on disk, and what do its programs change there?

- `modifications`: what WConfD's methods change. `reservations`: ``tempres.data``.
- `ssconf`: what the ssconf files hold. `ssconf_files`: the files.
- `config_kinds`: what the core asks of objects, by `schemas` and `object_rules`. `address_pools`
  and `tags`: what rules and operations share.
- `watcher_pause`: until when Ganeti's watcher does nothing.
- `defaults` and `parameters`: the value of what an object does not have itself.
"""
