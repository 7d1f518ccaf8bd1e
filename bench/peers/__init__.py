"""``make bench-peers``: Ganger and other job queues do the same work, in turn, on one machine."""
