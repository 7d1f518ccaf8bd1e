"""What do Ganeti's own tools and jobs ask for: LUXI, WConfD and the ssconf files?

Two listeners and a part of the configuration store, which join by entry points. Both listeners read
documents at a Unix socket, send messages to the components that serve other clients, too, and make
Ganeti's words of the replies.

- `document_sockets`: such a socket. `document_door`: keeps it open. `peers`: who is at its other
  end.
- `luxi_listener`: LUXI. `luxi_methods` and `luxi_queries`: which message each method sends.
  `luxi_talks`: what these are made of. `luxi_opcodes`: submitted opcodes, as strictly as LuxiD.
  `luxi_options`: where the socket is, and for whom.
- `wconfd_listener`: WConfD. `wconfd_table`: its methods about the configuration.
  `wconfd_catalogue`: what serves these. `wconfd_methods`: which message each method sends.
- `config_part`: the part of the store. `notices`: what it says to itself. `opcode_runs`: opcodes
  that need nothing but the configuration, each carried out once. `cluster_queries`: queries for its
  objects, with `known_cluster`, `own_host` and `other_hosts` (what the daemon, this machine
  and hosts say themselves). `reservation_keeper`: the only writer of ``tempres.data``.
  `ssconf_files`: the files that follow the configuration.
- `queue_answers`: queries for jobs (`job_queries`), and waits for a change of one: `wait_list` says
  who waits, `change_waits` answers at the end of the turn that changed it, `job_state` has what
  such a client gets (docs/decisions/waits-are-looked-at-when-their-job-changes.md).
  `lock_queries`: queries for locks. `config_queries`: queries for the configuration.
  `query_pages`: a page of any.
- `query_operations`: how a job's process asks for what queries answer. `node_operations`: how it
  asks hosts, and submits jobs: verify, copies of files, restricted commands.
"""
