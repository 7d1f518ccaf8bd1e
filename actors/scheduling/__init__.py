"""Which pending job starts now?

The component is `Scheduler`. Beside it, files decide without a clock and without files.
"""
