"""Which opcodes does Ganeti have, and with which parameters?

- `catalogue`: a family of `storage.opcodes`, made from ``catalogue.json``.
- `notation`: Ganeti's notation for types of parameters.
"""
