"""How do frames travel over sockets?

At the local socket the client for threads and the daemon's listener speak ZeroMQ's protocol
themselves, without libzmq's threads (docs/decisions/clients-speak-zeromqs-protocol.md and
docs/decisions/the-local-listener-speaks-zeromqs-protocol.md).
"""
