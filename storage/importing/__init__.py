"""Takes over a state directory of Ganeti: reads it, decides what becomes of its jobs, writes ours.

``fates`` decides, ``source`` reads, ``building`` writes. The source is never changed.
"""
