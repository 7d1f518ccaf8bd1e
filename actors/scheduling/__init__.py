"""Which pending job starts now?

The component is `Scheduler`. Beside it, files decide without a clock and without files.

`Schedule` knows what is said of jobs and makes the pass. `StartOrder` says which eligible job comes
first and which stand aside. Jobs between which their ids alone decide share a `Lane` (`lanes`),
which is held, parked and let go as a whole; `Eligible` keeps lanes in order. `ClassVerdicts` has
the verdicts that the jobs of a class share, and `ScheduleSnapshot` answers questions.
"""
