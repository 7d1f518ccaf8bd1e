"""How do the processes of one daemon speak to each other?

`process_link` joins the components of two processes; `link_frames` carry any message to any of
them.
`wire_link` is a job's way to a daemon that did not make its process; it attaches itself, and sends
again what a break has swallowed.
"""
