"""Which opcodes does Ganeti have, and with which parameters?"""
