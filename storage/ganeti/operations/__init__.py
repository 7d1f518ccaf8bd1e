"""What do Ganeti's opcodes do to the configuration? Pure.

- `base`: what an operation gets, and what it answers. `deciding`: how one is carried out.
  `lookups`: objects by their names. `table`: all of them, by their opcodes.
- Of the cluster: `cluster` (the family), `cluster_settings`, `cluster_parameters` and
  `cluster_storage` (``OP_CLUSTER_SET_PARAMS``, on a `cluster_draft`), `cluster_checks`
  (``OP_CLUSTER_VERIFY_CONFIG``), `group_checks` (``OP_CLUSTER_VERIFY_GROUP``), `verify_report`
  (what both tell), `cluster_distribution` (``OP_CLUSTER_REDIST_CONF``).
- `groups` and `group_locks`, `networks` and `connections`, `tags`, `nodes`. `candidates`: the pool
  of master candidates.
- `values`, `hypervisors`, `policies`, `disk_access`: which values parameters may have.
"""
