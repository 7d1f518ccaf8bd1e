"""Which job holds which lock, and which waits?

`LockManager` is the only writer of the lock state; `locking` decides. The names and levels of locks
are in `storage.locks`.

- `lock_manager`: the component. `locking`: who gets locks, who waits, who is next. Pure.
  `known_locks`: who holds and wants what. `allocating`: what a request collides with. `waiting`:
  the line.
- `owner_watch`: which owners live.
- `lock_questions`: answers about all locks. `lock_views`: lists, why an owner
  waits, what-if. `lock_refusals`: the words of a refusal. `lock_remedies`: the smallest change that
  would help.
"""
