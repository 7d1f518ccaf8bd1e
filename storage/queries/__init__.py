"""What do queries answer?

One table of fields for each resource, and rules that all share.

- `jobs`, `locks`, `filters`: the resources of the core, which `resources` lists. `job_masks`: what
  readers must not see of jobs.
- `fields`: what a field is. `answering`: items, their order and their values. `paging`: an answer
  page by page.
"""
