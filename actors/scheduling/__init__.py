"""Which pending job starts now?

`Scheduler` owns the order; the other files decide, without a clock and without files. A pass of
`Schedule` says which jobs start, which can never start, and when to look again.

- `scheduler`: the component. `scheduling`: `Schedule`, which decides in passes. `scheduled_jobs`:
  what is known of jobs. `pass_outcome`: what a pass decided. `pending_job`: jobs in memory.
- Who may start: `depending` (dependencies), `unsatisfiable` (how many that never can, end at a
  time), `class_verdicts` (what the rules say of a class).
- In which order: `start_order` (which comes first, and which stand aside), `eligible`, `lanes`
  (jobs between which their ids alone decide), `ageing` (how old they are).
- Which locks: `predicting` (how likely a job would wait), `holding` (what running jobs hold),
  `forecast_questions` (names to be asked of the configuration).
- Questions: `queue_position` (where a job stands), `first_obstacle` (for what it waits),
  `simulating` (what if), `remedies` and `smallest_change` (what would let it start).
"""
