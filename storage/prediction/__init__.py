"""Which locks will jobs take, and what does it cost to start a job beside those that run?

Ganeti design: predictive queue (never released). Pure: no clock, no files.

- `declared`: the forecast of an opcode. `own_locks`: the declarations of Ganger's own;
  `storage.ganeti.prediction` has Ganeti's. `declared_needs`: what a declaration may ask. `needs`:
  what an opcode itself declares.
- `lock_types`: forecasts, and what two of them cost beside each other. `policy`: the parameters.
- `estimates`: run times. `planning` and `planned_locks`: when jobs will start and end.
"""
