"""How do frames travel over sockets?

Clients are sockets of pyzmq, and any ZeroMQ library may connect. The daemon's local listener speaks
ZeroMQ's protocol itself, without libzmq's thread
(docs/decisions/the-local-listener-speaks-zeromqs-protocol.md).
"""
