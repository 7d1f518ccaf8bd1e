"""Which locks do Ganeti's opcodes take?"""
