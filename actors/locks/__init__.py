"""Which job holds which lock, and which waits?

The component is `LockManager`; `locking`, `allocating` and `waiting` decide.
"""
