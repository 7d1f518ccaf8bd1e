"""One job, in its own process."""
