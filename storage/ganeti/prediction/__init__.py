"""Which locks do Ganeti's opcodes take?

- `table`: the declarations of all.
- `cluster_locks`, `group_locks` (of networks, too), `instance_locks`, `node_locks`: by family.
"""
