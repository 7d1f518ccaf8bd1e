"""What do queries answer?

One table of fields for each resource, and rules that all share.

- `fields`: what a field is. `answering`: items, their order and their values. `paging`: an answer
  page by page. `jobs`, `locks`, `filters`: resources of the queue, which `queue_resources` lists.
- `cluster`, `nodes`, `groups`, `networks`, `exports`, and `instances` with `instance_parts`: the
  resources, which `resources` lists. `common_fields`: fields of several.
- `cluster_view`: who refers to whom. `cluster_info`: the cluster as a whole.
- `operations`: opcodes that only read. `query_locks`: the locks of ``OP_QUERY``.
"""
