"""Which hosts belong to a cluster, and what does a host know of its cluster?

- `tokens`: the line with which a host joins.
- `host_table`: the hosts and invitations that a master knows (`nodes/hosts.json`). Decisions: pure.
- `membership`: what a host knows of its cluster (`node.json` in its own data directory).
- `task_settings`: what a host lets tasks do (`node.toml`).
- `choosing`: which nodes the words of a user mean. Pure.
- `node_states`: which nodes take commands. Pure.
- `node_objects`: the objects of the configuration that stand for hosts. Pure.
- `seals`: is this the directory with which the master has spoken last?
- `begun_tasks`: which tasks has this directory forgotten, if it was put back to a copy?
- `task_marks`: which tasks a job's process has begun on nodes, and their keys there.
- `named_calls`: the calls that a host answers by name, and those of packages.
"""
