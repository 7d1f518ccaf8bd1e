"""What has a job printed?

`OutputReader` only reads: the job's process writes the file (`job.output`).

- `output_reader`: sends pages of it.
- `disk_watch`: how much of the disk that takes, and the rest of the queue.
- `page_waits`: the requests for more, and until when they wait. Pure.
"""
