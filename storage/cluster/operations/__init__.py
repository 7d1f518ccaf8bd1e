"""Operations of opcodes that need nothing but the configuration: pure decisions over a snapshot.

A job asks the configuration store twice. First which locks the opcode needs, as only the
configuration knows the groups of a node or the UUID of a name; then, when it holds them, to carry
the opcode out. The store does so in one step: it decides on its present snapshot, makes the changes
all or none, and answers with the result. What was true when the locks were asked for may no longer
be: a decision checks its prerequisites again.
"""
