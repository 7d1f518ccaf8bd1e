"""Which commands are about a cluster of Ganeti?"""
