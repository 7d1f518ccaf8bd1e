"""Which job starts."""
