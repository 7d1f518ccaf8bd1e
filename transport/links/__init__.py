"""How do the processes of one daemon speak to each other?

`Link` says what is promised, and keeps what is open; it is pure. Two doers have the sockets.
`ComponentLink` joins the components of two processes; `link_frames` carry any message to any of
them. A job's process has one link to its daemon (``actors/job/daemon_link``): over the channel that
it was born with, and over an `AttachedWire` to a daemon that did not make it, or to a component in
another process.
"""
