"""Writes docs/cli.md from the help of the commands: run it after changing a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ganger.cli.main import EXIT_CODES, ganger

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 78

HEAD = """\
# The command line

The descriptions of the commands, and the exit codes, are written by `docs/make_cli_reference.py`
from the help of the commands; a test compares the two. `ganger COMMAND --help` shows the same.
Shell completion: `ganger completion --help`.

## What goes for all commands

**Where.** `--data DIR`, which stands before the command, or `GANGER_DATA` names the data
directory; without them it is `/var/lib/ganger` for root and `~/.local/share/ganger` for everybody
else. Commands find the running daemon through it. The local door lets in the user whose daemon it
is, and root.

**Output.** What was asked for is on standard output; errors and progress are on standard error.
On a terminal a listing has colours and relative times. In a pipe it is plain: one row a line,
times in UTC. `-o json` is for programs; its times are seconds since the epoch.

**Errors.** Every error is one line on standard error, `ganger: ...`, that names what is wrong and
where. What was refused has stored nothing; of a batch, nothing at all, unless a filter rule rejects
some of its jobs (see `ganger job submit`): then each of these has a line.

```text
$ ganger job list
ganger: no daemon answers for data directory /home/me/try; start one: GANGER_DATA=/home/me/try \
ganger up
$ ganger job submit --op '{"OP_ID": "OP_EXEX"}'
ganger: unknown opcode 'OP_EXEX' (did you mean OP_EXEC?)
$ ganger daemon
ganger: /home/me/try/queue: another daemon uses this queue directory
```

## What `job submit` reads

JSON or YAML, in one of these forms. One job, by its opcodes:

```yaml
- {OP_ID: OP_EXEC, argv: [make, backup]}
- {OP_ID: OP_EXEC, argv: [make, check]}
```

One job, with what goes for all of it:

```yaml
ops: [{OP_ID: OP_EXEC, argv: [make, backup]}]
reason: nightly
priority: 5
depends: [17, [18, [success, error]]]
```

Many jobs; with names and `after` a plan:

```yaml
jobs:
  - name: backup
    ops: [{OP_ID: OP_EXEC, argv: [make, backup]}]
  - name: check
    after: [backup]
    ops: [{OP_ID: OP_EXEC, argv: [make, check]}]
  - name: alarm
    after: [{backup: [error, canceled]}]
    ops: [{OP_ID: OP_EXEC, argv: [make, alarm]}]
```

`after` names jobs of the same file, `depends` the ids of jobs submitted before. Both wait for
success, or for the statuses that are named. Ids are given so that each job comes behind those it
waits for. `--reason`, `--priority` and `--depend` go for each job of the file that says nothing
of its own about it (for `--depend`: neither `after` nor `depends`).

## What `exec` runs

A job with one `OP_EXEC`. The command runs as the daemon's user, not as the one who submits it; in
the root directory unless `--cwd` says otherwise; and with a clean environment: `PATH`, `HOME` and
`LANG`, `LC_ALL`, `LOGNAME`, `TZ` and `USER` if the daemon has them, `GANGER_JOB_ID`,
`GANGER_OPCODE_INDEX`, `GANGER_JOB_PROCESS`, and what `--env` sets. Past its time limit it gets
SIGTERM, and SIGKILL five seconds later; both go to its whole process group. When it has ended,
everything that it started and that still runs is ended too, also what has left its session
(`setsid`), before the locks are free. What is to stay, a daemon say, is better started by the
machine's own manager: `ganger exec -- systemd-run --unit NAME COMMAND`. Where there is none,
`--leave-running` (`leave_running` of the opcode) leaves alone what has left the command's process
group. All of its output, up to 1 GiB, is kept beside the job (`ganger job logs`); the first 1,000
lines (64 KiB) go into the job's log too, and the last 4 KiB of each stream into the result.

`ganger exec` ends with 127 if there is no such command, with 126 if it cannot be executed, with 1
if it never ran for another reason (`--cwd` is no directory, say, or the job was canceled), with 124
if it took longer than `--timeout`, and with 130 when interrupted.
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD, "## Exit codes\n", _block(EXIT_CODES.replace("\b\n", ""))]
    for name, command in _commands(ganger, "ganger"):
        # Not as wide as the terminal in which this runs.
        context = click.Context(command, info_name=name, terminal_width=WIDTH)
        parts += [f"## {name}\n", _block(command.get_help(context).replace("\b", ""))]
    return "\n".join(parts)


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _block(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().split("\n"))
    return f"```text\n{lines}\n```\n"


if __name__ == "__main__":
    (Path(__file__).parent / "cli.md").write_text(reference(), encoding="utf-8")
