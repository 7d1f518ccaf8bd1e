"""What is said of jobs: reasons and estimates?

Listings, reads of whole jobs and watches are in `store.queue_reader`. Packages answer more
(`runtime.installed_answers`).

- `diagnosis`: what needs the scheduler or the lock manager: why a job waits, and simulations.
  `explaining`: the reasons in order, and their words. Pure.
- `estimating`: learns the run times of opcodes, and sends what a plan of starts and ends needs.
"""
