"""The files of the queue directory: jobs, their journal, and what lies beside them."""
