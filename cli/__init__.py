"""How do people come in? The commands. They import transport and storage.

`main` has the table of commands. ``ganger NOUN VERB`` is a function in the file of the noun:
`cluster`, `config`, `filter`, `job` (with `job_list`, `logs` and `purging`), `key`, `lock`,
`queue`, `rapi`. Commands without a noun are in `up` (``up``, ``down``), `status`, `execute`
(``exec``), `daemon`, `fsck` and `completion`; what only Ganeti's users need is in `ganeti/`, traces
(``queue record``, ``queue simulate --trace``) are in `lab/`. Only `daemon` imports actors, and
``lab/replay.py`` those of ``actors/lab``. Files without a command are shared:

- `entry`: the first line that runs. `main`: finds the command, and prints errors. `hints`: guesses
  what a wrong word was meant to be. `help_text`: wraps help.
- `call`: the data directory, and the client of a command.
- `choices`: options and types of values that several commands have. `lock_names`: locks that nobody
  can mean. `repeating`: ``--key``.
  `rule_options`: those that describe a filter rule. `daemon_options`: those of the daemon.
- `reading`, `plans`, `yaml_documents`: read what users wrote.
- `output`, `layout`: tables and JSON. `progress`, `following`, `whys`, `etas`, `logs`,
  `lock_graph`: show work, jobs and locks.
- `submitting`, `retrying`: submit jobs. `many`: a request for each of many jobs. `start_report`,
  `first_rapi`: the start of a daemon.
"""
