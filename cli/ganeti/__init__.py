"""Which commands and options are about a cluster of Ganeti?

- `import_ganeti`: ``ganger import-ganeti``.
- `daemon_options`: options of a daemon that serves LUXI.
"""
