"""How does a program speak to a daemon? The client library.

- `async_client`: the verbs that submit, read and follow jobs. `async_queue_verbs`: those that
  change jobs and the queue, and tell why jobs wait. `async_cluster_verbs`: those that are not about
  single jobs. `async_streams`: what is read bit by bit. docs/make_client.py makes `client`,
  `queue_verbs`, `cluster_verbs` and `streams` from them
  (docs/decisions/one-client-is-made-from-the-other.md).
- `requests`, `filter_requests` and `query_requests`: make messages from verbs, and values from
  replies.
- `session`: the conversation with a daemon, without socket and clock: how often a request is
  repeated. `in_flight`: the requests under way, and after which pause a refused one is repeated
  (``RETRY_SECONDS_MIN``, doubled up to ``RETRY_SECONDS_MAX``). `watch_progress`: the same for those
  with many replies.
- `connection`: joins a session with a socket; how often the file with the daemon's address is read
  again. `reachability`: whether a daemon answers. How fast the socket reconnects is in
  `transport.zmq.dealer`. `forks`: a client that finds itself in a child process.
- `caller` waits for threads, `async_caller` for asyncio. `spans`: for how long.
- `following`: jobs until their end. `output_reading`: a job's output; `reading_ahead`: that of a
  node's task; `placed_log`: what it has logged, in its place. `etas`: when jobs will start.
  `joining`: how a host joins a cluster.
  `wanted_locks`: which pending jobs want which locks. `purges`: what goes for good, page by page.
"""
