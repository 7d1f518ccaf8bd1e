"""What does the configuration hold, and what may it become? Values only.

- `configuration`: a snapshot, and how changes make the next one. `objects`: the kinds of objects;
  packages bring their schemas. `names`: objects by their names.
- `assertions`: what must fit, object by object. `integrity`: whether it does. `shapes` and
  `damage`: whether a loaded one can be used.
- `differences`: what a change changed, without secrets.
- `lock_names`: the UUIDs by which nodes, groups and networks are locked.
- `delays`: the locks of ``OP_TEST_DELAY``.
"""
