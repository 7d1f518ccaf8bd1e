"""What becomes of a state directory of Ganeti?

Reads it, decides what becomes of its jobs, writes ours. ``import_decision`` decides, ``source``
reads, ``building`` writes. The source is never changed.
"""
