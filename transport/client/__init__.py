"""How does a program speak to a daemon? The client library.

`requests` makes the messages. `session` keeps each request (`in_flight`) until its reply, and
repeats it when need be, without socket and clock, also those with many replies (`watch_progress`).
`reachability` knows whether a daemon answers, `connection` joins a session with a socket.
`caller` waits for threads, `async_caller` for asyncio. `async_client` and `async_cluster_verbs`
hold the verbs, `async_streams` what is read bit by bit; docs/make_client.py makes `client`,
`cluster_verbs` and `streams` from them (docs/decisions/one-client-is-made-from-the-other.md).
"""
