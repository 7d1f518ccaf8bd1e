"""Which locks do Ganeti's opcodes take?

- `table`: the declarations of all. `ganeti_input`: what they may ask of the opcode and of the
  configuration. `configured_names`: names, resolved in one state of it.
- `cluster_locks`, `group_locks` (of networks, too), `instance_locks`, `node_locks`: by family.
"""
