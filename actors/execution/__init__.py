"""Which process runs a job, and what does its end mean?

`Executor` makes processes with fork servers, and passes messages between jobs and components. A
fork server holds no state. Before it forks, it imports all that a job needs and makes dry runs of
jobs. When it fails, the supervisor has the executor start another one, and hand-overs that were not
confirmed begin anew. Jobs that run do not notice.

- `executor`: the component. `children`: the processes of jobs, and how they are reached.
- `fork_servers`: the fork servers as the executor has them. `fork_server`: the program of one;
  `template` gives it a name in the list of processes, `prewarming` makes its dry runs.
- `idle_processes`: those that have left a job in order, and wait for another one.
- `reaper`: follows each process to its end and reports it. `watching`: what that end means. Pure.
  `left_over`: ends what the process of a dead job has left running.
"""
