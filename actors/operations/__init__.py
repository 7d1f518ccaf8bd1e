"""What does an opcode do?

A job's process looks its opcode up in `registry.OPERATIONS`. An opcode of a package brings its
operation (`run`). One that needs nothing but the configuration runs in the configuration store
instead (`storage.ganeti.operations`).

- `registry`: the table, short operations, and how failures are stored.
- `commands`: ``OP_EXEC``. `command_output`: what its command prints. `on_node`: a command on
  another host. `task_results`: what its end there says. `as_user`: a command of another user.
- `copies`: ``OP_NODE_COPY``. `host_files`: puts files on this host.
- `named_calls`: ``OP_NODE_CALL``. `host_answers`: what a host answers to Ganger's own calls.
  `restricted_commands`: runs those that it lets others run.
- `node`: `ganger.node`, what operations in Python call to have something done on nodes. `current`:
  which operation runs.
- `printing`: what an operation in Python prints.
- `local_context`: runs an opcode without a daemon, for tests of opcodes.
"""
