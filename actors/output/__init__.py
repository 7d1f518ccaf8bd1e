"""What has a job printed?

The component is `OutputReader`; `page_waits` decides.
"""
