"""Which pending job starts now?

The component is `Scheduler`. Beside it, files decide without a clock and without files.

`Schedule` knows what is said of jobs and makes the pass. `StartOrder` says which eligible job comes
first and which stand aside; `eligible` and `runs` keep them in order, and `kinds` and `alike` find
what jobs have in common. `ScheduleSnapshot` answers questions about them.
"""
