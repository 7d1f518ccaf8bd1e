"""What are the names, levels and modes of locks, and what is in their file?

- `locks`: names, levels, modes, owners, and ``locks.data``.
- `lock_journal`: the changes since ``locks.data`` was written.
- `lock_rows`: the list of locks, as it is shown.
"""
