"""Which hosts are there, and how does work reach them?

On the master:

- `node_keeper`: keeps the process beside the daemon in which the hub lives, once a host is invited.
- `node_hub`: has the connections of all nodes, and passes the calls of jobs' processes on to them.
- `node_records`: has the configuration store keep a node object for each of them.
- `listing`: what the hub tells operators of a host.
- `announcing`: where hosts find the master.
- `seen_tasks`: how far the ids of tasks have come on each node.
- `node_calls`: the calls that nodes have not answered.
- `node_figures`: what hosts say of themselves when a query asks.
- `silences`: since when nodes are silent, and why.
- `versions`: whether a master and a node understand each other.
- `left_tasks`: the tasks that dead processes of jobs have left on nodes, and that must end there.

On a host:

- `node_link`: calls the master, and answers what jobs there ask of this daemon.
- `task_answers`: where the replies to the master's requests go.
- `task_ends`: ends tasks when the master says that their jobs have lost their processes.

The daemon of a host is one like the master's: a task of a job is a job in its queue
(docs/decisions/a-task-is-a-job-of-its-node.md).
"""
