"""Which requests come in, and which way do the replies take?

Bytes in, messages out. A listener checks who speaks, and passes each request to the component in
`messages.RECEIVERS`. The component sends the reply itself, in its own turn (`Outlet.tell`). The
listener sends it in its turn only if a thread is using the sockets, or if an earlier reply to the
same peer has not left yet (docs/decisions/submissions-are-answered-by-the-queue.md). HTTP is no
listener: the remote API is a client, in a process of its own (`rapi`).

- `wire_listener`: ZeroMQ, local and remote. A socket of its own is in `transport.zmq`.
- `authority_listener`: the same in the process ``authority`` (`actors.supervision`).
- `job_credentials`: which connection speaks for a job. `submitters`: which user does.
- `installed`: listeners of packages, such as those for LUXI and WConfD in `actors.ganeti`.
"""
