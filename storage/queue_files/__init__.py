"""What lies in the queue directory: jobs, their replay, and what lies beside them?

- `job_files`: job files, ``serial``, ``version``, the archive. `inodes`: spares that replace them.
- `replay`: what the journal has that the files lack. `compaction`: writes what sealed segments
  cover. `read_back`: looks whether the disk has it.
- `archive_index`: what listings show of archived jobs, so that no job's file need be read.
  `archived_hints`: which folders of the archive may have what is looked for.
- `disk_use`: what the queue takes on disk. `removal`: what a job takes, and how it goes for good.
- `purged_tasks`: of a host's purged tasks, what is left.
- `spool`: large input and output, beside a job's file. `output_files` and `output_blocks`: the file
  of a job's output. `output_limits`: how much there may be.
"""
