"""Writes docs/cli.md from the help of the commands: run it after changing a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ganger.cli.main import EXIT_CODES, SETTINGS, ganger

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 78

HEAD = """\
# The command line

The descriptions of the commands, and the exit codes, are written by `docs/make_cli_reference.py`
from the help of the commands; a test compares the two. `ganger COMMAND --help` shows the same.
Shell completion: `ganger completion --help`.

## All commands

**Where.** `--data DIR`, which stands before the command, or `GANGER_DATA` names the data
directory; without them it is `/var/lib/ganger` for root and `~/.local/share/ganger` for other
users. Commands find the running daemon through it. Its local socket admits the daemon's own user,
and root.

**Output.** Results are on standard output; errors and progress are on standard error. On a terminal
a listing has colours and relative times. In a pipe it is plain: one row a line, columns below each
other, times in UTC; so `grep` and `less` show it as a person wants it. For programs that cut
columns `--separator` puts a tab, say, between them, because a summary has blanks; `-o json` has
everything, with times in seconds since the epoch. An empty listing says so on standard error,
unless `--no-headers` says that a program reads it.

**Jobs.** Wherever a command takes the id of a job it takes its name, too (`--name`, or the name in
a plan): that of the newest job so called. The name of a plan stands for all jobs of its newest
submission, and `@last` for the newest job that you have submitted.

**Times.** A span is written as `90` (seconds), `1.5h`, `30m`, `7d` or `2w`, everywhere.

**Errors.** Every error is one line on standard error, `ganger: ...`, that names the error and its
place. A refused request has stored nothing; of a refused batch no job is stored. The exception is a
batch of which a filter rule rejects some jobs (see `ganger job submit`): each of these has a line.
If the answer is lost, because the daemon ends or a deadline passes, the change may have been made:
look before you repeat it. The line says `the outcome of ... is unknown`, and after a submission the
key under which it can be repeated safely.

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

JSON or YAML, up to 64 MiB (JSON is read several times as fast), in one of these forms. One job,
by its opcodes:

```yaml
- {OP_ID: OP_EXEC, argv: [make, backup]}
- {OP_ID: OP_EXEC, argv: [make, check]}
```

One job, with options for all of it:

```yaml
ops: [{OP_ID: OP_EXEC, argv: [make, backup]}]
reason: nightly
priority: 5
depends: [17, [18, [success, error]]]
```

Many jobs; with names and `after` a plan:

```yaml
name: nightly
jobs:
  - name: backup
    ops: [{OP_ID: OP_EXEC, argv: [make, backup]}]
  - name: check
    after: [backup]
    ops: [{OP_ID: OP_EXEC, argv: [make, check]}]
  - name: alarm
    after: [{backup: [failed, lost]}, {check: always}]
    ops: [{OP_ID: OP_EXEC, argv: [make, alarm]}]
```

Jobs and plan can be called by their names afterwards. `after` names jobs of the same file,
`depends` the ids of jobs submitted before. Both wait for success, or for the words that they name:

- `success`, `error`, `canceled`: the other job has ended with this status of Ganeti's.
- `failed`, `skipped`, `rejected`, `killed`, `timed-out`, `lost`: it has ended with this
  [outcome](client.md#how-a-job-ended).
- `always`: it has ended, in whatever way. One word may stand without a list: `{check: always}`.
- `any-failed`: of all jobs with this word, one has failed, timed out, been killed or lost.

A job whose words cannot come true any more is skipped, with the first of them as the reason; of
`any-failed`, when all of these jobs have ended without. If it is skipped because another job has
succeeded, it was not needed. Each job gets a higher id than the jobs that it waits
for. `--reason`, `--priority` and `--depend` apply to each job of the file that does not set them
itself (for `--depend`: that has neither `after` nor `depends`).

## What makes waiting commands fail

`ganger job submit --wait`, `ganger job wait` and `ganger exec` end with 0 if each job has succeeded
or was not needed. A job that failed, timed out, was killed, lost, rejected or canceled has not
ended well: a script that waits for a job goes on only if its work is done, so a job that somebody
has canceled counts, too. A job that was skipped counts as the job that is the cause: it was not
needed if that has succeeded.

## What `exec` runs

A job with one `OP_EXEC`. The command runs as the daemon's user, not as the user that submits it; in
the root directory unless `--cwd` says otherwise; and with a clean environment: `PATH`, `HOME` and
`LANG`, `LC_ALL`, `LOGNAME`, `TZ` and `USER` if the daemon has them, `GANGER_JOB_ID`,
`GANGER_OPCODE_INDEX`, `GANGER_JOB_PROCESS`, and the variables of `--env`. Past its time limit its
whole process group gets SIGTERM, and SIGKILL five seconds later. When the command has ended, all
processes that it has started end too, before the locks are free, even those that have left its
session (`setsid`). To start a process that is to stay, such as a daemon, use the machine's own
manager: `ganger exec -- systemd-run --unit NAME COMMAND`. Without such a manager, `--leave-running`
(`leave_running` of the opcode) spares processes that have left the command's process group. All of
the output, up to 1 GiB, is kept beside the job (`ganger job logs`); the first 1,000 lines (64 KiB)
go into the job's log too, and the last 4 KiB of each stream into the result.

`ganger exec` ends with 127 if there is no such command, with 126 if it cannot be executed, with 1
if it never ran for another reason (`--cwd` is no directory, say, or the job was canceled), with 124
if it took longer than `--timeout`, and with 130 when interrupted.
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD, "## Exit codes\n", _block(EXIT_CODES.replace("\b\n", ""))]
    for name, command in _commands(ganger, "ganger"):
        # Not as wide as the terminal in which this runs.
        context = click.Context(
            command,
            info_name=name,
            terminal_width=WIDTH,
            help_option_names=SETTINGS["help_option_names"],
        )
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
