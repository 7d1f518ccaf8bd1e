"""What do Ganeti's clients ask of its objects?

- `cluster`, `nodes`, `groups`, `networks`, `exports`, and `instances` with `instance_parts`: the
  resources, which `resources` lists. `common_fields`: fields of several.
- `cluster_view`: who refers to whom. `cluster_info`: the cluster as a whole.
- `operations`: opcodes that only read. `query_locks`: the locks of ``OP_QUERY``.
"""
