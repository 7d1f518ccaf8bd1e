"""Which submissions are taken in, and what is stored of them?

`Admission` asks in this order: is it a repetition of one under the same key, does the disk refuse
writes, is the queue drained, are the opcodes right, and does a rule in force reject a job? Then it
gives the ids, and has the `Ledger` store the jobs. A submission that comes before the first rules
waits (`JobQueue.receive`). A large one is worked at in slices.

- `admission`: the order above, the drain, and the answer.
- `submitting`: checks, and the jobs that will be stored. Pure.
- `retrying`: what a retry depends on. Pure.
- `submission_keys`: the ids that were given under a key. `repeating`: whether a submission is a
  repetition. Pure.
"""
