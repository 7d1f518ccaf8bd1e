"""How does an opcode look at the configuration, and change it? Pure.

The operations are in `storage.ganeti.operations`; these files serve them all.

- `base`: what an operation gets, and what it answers. `deciding`: how one is carried out.
- `lookups`: objects by their names. `delays`: the locks of ``OP_TEST_DELAY``.
"""
