"""What does the configuration hold, and what may it become? Values only.

- `configuration`: a snapshot, and how changes make the next one. `objects`: the schema.
- `assertions`: what must fit, object by object. `integrity`: whether it does. `shapes` and
  `damage`: whether a loaded one can be used.
- `tags`, `address_pools`: rules of these. `differences`: what a change changed, without secrets.
"""
