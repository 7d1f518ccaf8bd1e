"""What is a job: its statuses and their table, its bounds, its forms?

- `jobs`: the job as its file has it, `JobStatus` and `TRANSITIONS`. `job_ends`: what becomes of the
  opcodes of a job that ends early.
- `outcomes`: what happened to a job that has ended, in one word, with a reason and the root cause.
- `listing`: the fields that listings of jobs show, one line each. `job_filters`: which of the jobs.
- `origins`: a job's name, its plan, the job that it repeats, and who submitted it. `plan_runs`:
  which jobs are those of the newest plan of a name.
- `job_views`: a job as users of the library see it.
- `job_headers`: what a start reads of a pending job.
- `job_bounds`: how large a job may become.
"""
