"""How do the processes of one daemon speak to each other?

- `link`: what is promised, and what is open. Pure. Two doers have the sockets:
- `component_link`: joins the components of two processes. `link_frames`: any message, to any of
  them.
- `attached_wire`: a job's way to a daemon that did not make its process, or to a component in
  another process. Over the channel that the process was born with, the doer is
  ``actors/job/daemon_link``.
"""
