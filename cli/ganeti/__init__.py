"""Which commands and options are about a cluster of Ganeti?

- `import_ganeti`: ``ganger import-ganeti``.
- `query`: ``ganger query`` and ``query-fields``. `watcher`: ``ganger cluster watcher``.
- `daemon_options`: options of a daemon that serves LUXI.
"""
