"""What do Ganeti's own tools and jobs ask for: LUXI, WConfD and the ssconf files?"""
