"""What is configured, who changes it, and who is told?

`ConfigStore` is the single writer of the configuration. A change waits in a line for the
configuration lock, is decided on a snapshot, and is made durable. Then the store tells it: rules go
to the filter evaluator, limits and the policy to the scheduler. A change of these is answered when
both scheduler and queue go by it.

- `config_store`: the component, its limits, and which part handles a message. `disk_limits`: those
  of the disk. Pure.
- `change_line`: the line. `change_keys`: changes that repeat an earlier one under its key.
  `stored_configuration`: the present snapshot, and its files.
- `pending_acks`: which stored changes are in force, and who waits to hear of it.
- `filter_rules`: the rules: stored, listed, brought into force.
- `objects`: requests about objects, read and checked. Pure. `opcode_locks`: the locks of opcodes
  that the store locks.
- `known_nodes`: tells the queue which nodes take commands.
- `forecasts`: tells the scheduler which locks pending jobs will take.
- `object_pages`: answers to reads.
- `installed_parts`: parts that packages bring, such as that for Ganeti's programs.
"""
