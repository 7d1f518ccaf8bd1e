"""How does a program speak to a daemon? The client library."""
