"""How do frames travel over sockets?

Clients are sockets of pyzmq, and any ZeroMQ library may connect. The daemon's local listener speaks
ZeroMQ's protocol itself, without libzmq's thread
(docs/decisions/the-local-listener-speaks-zeromqs-protocol.md).

- The client's end: `dealer` (how fast it reconnects, too), `async_dealer`, `connection_event`.
  `local_wire`: that of a job's process, without libzmq.
- The daemon's end: `router` with its `listeners`: `local_listener` (`zmtp`, `accept_queue`) and
  `remote_listener`. `peers`: who is connected. `accept_filter` and `memory_guard`: limits.
- `sockets`: what both ends share: contexts, heartbeats, keys.
"""
