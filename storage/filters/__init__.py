"""What do filters and rules say of a job?

The query filter language, and the rules that are written in it.
"""
