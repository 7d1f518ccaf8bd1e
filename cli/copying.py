"""``ganger node copy``: files of this machine are put on nodes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..storage import errors
from ..storage.nodes import choosing
from . import choices, execute, fan_out, output, repeating, whys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.client.client import Client
    from .call import Call
    from .plans import PlannedJob


class Target(NamedTuple):
    """Words that name nodes, and the path there."""

    words: list[str]
    path: str


@click.command(short_help="Put files on nodes.")
@click.option(
    "--mode",
    type=choices.Text(),
    metavar="BITS",
    help="Permission bits there, such as 0640; those of the file here without it.",
)
@click.option(
    "--owner",
    type=choices.Text(),
    metavar="USER",
    help="User there, a name or a number; a host says which it allows (`ganger node check`).",
)
@click.option("--group", type=choices.Text(), metavar="GROUP", help="Group there.")
@click.option(
    "--parallel",
    type=click.IntRange(min=1),
    metavar="N",
    help="With several nodes: copy to N at a time; to all without it.",
)
@click.option(
    "--stop-on-failure",
    is_flag=True,
    help="With several nodes: begin on no further one when it has failed on one.",
)
@click.option(
    "--lost-after",
    type=choices.Seconds(least=0.001),
    metavar="TIME",
    help="Wait no longer than this for a node that is silent, such as 10m. Its locks stay.",
)
@choices.submission_options
@repeating.key_option("a submission")
@click.option("-d", "--detach", is_flag=True, help="Print the id and return; the job goes on.")
@whys.quiet_option
@click.argument("files", nargs=-1, required=True, type=choices.Text(), metavar="FILE...")
@click.argument("target", type=choices.Text(), metavar="NODE:PATH")
@click.pass_obj
def copy(
    call: Call,
    /,
    *,
    files: Sequence[str],
    target: str,
    parallel: int | None,
    stop_on_failure: bool,
    detach: bool,
    quiet: bool,
    dry_run: bool,
    key: str | None,
    **options: Any,  # noqa: ANN401 - parameters of the opcode, and what `Client.submit` takes
) -> int:
    """Put each FILE of this machine at PATH on NODE, as a job that locks the node shared.

    \b
    ganger node copy site.conf web1:/etc/nginx/conf.d/
    ganger node copy --mode 0640 --owner deploy app.tar.gz web1:/srv/app.tar.gz
    ganger node copy a.txt b.txt tag:web:/srv/files/
    ganger node copy --parallel 3 app.tar.gz web1,web2,tag:db:/srv/

    A file is there entirely, with its checksum, mode and owner, or not at all: it gets its name
    when all of it has come. PATH is a file, or a directory that exists; several files need a
    directory. The daemon reads the files when the job runs. On several nodes there is a job for
    each, as with `ganger exec --on`.
    """  # noqa: D301 - the mark that keeps lines apart
    found = parsed(target)
    ops = _opcodes(files, found.path, options)
    is_several = len(found.words) > 1 or any(map(choosing.is_group, found.words))
    if not is_several and (parallel is not None or stop_on_failure):
        raise errors.UsageError("--parallel and --stop-on-failure go with several nodes")
    with call.client() as client:
        if is_several:
            spread = fan_out.Spread(parallel, stop_on_failure)
            planned, plan = _planned(client, ops, found.words, spread, key, options)
            how = {"dry_run": dry_run, "detach": detach, "quiet": quiet}
            return fan_out.run(client, planned, plan=plan, key=key, **how, **options)
        for op in ops:
            op["node"] = found.words[0]
        if dry_run:
            client.submit(ops, dry_run=True, **options)
            output.echo("The job would be accepted.")
            return 0
        with repeating.under(key) as used:
            job_id = client.submit(ops, key=used, **options)
        return execute.finish(client, job_id, detach=detach, quiet=quiet)


def _opcodes(files: Sequence[str], path: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    """An opcode for each file, with the parameters that stand among these ``options``."""
    given = {name: options.pop(name) for name in ("mode", "owner", "group", "lost_after")}
    if len(files) > 1:
        path = f"{path.rstrip('/')}/"
    return [
        {"OP_ID": "OP_NODE_COPY", "source": source, "path": path}
        | {name: value for name, value in given.items() if value is not None}
        for source in map(_source, files)
    ]


def _planned(  # noqa: PLR0917 - what a fan-out needs
    client: Client,
    ops: list[dict[str, Any]],
    words: Sequence[str],
    spread: fan_out.Spread,
    key: str | None,
    options: dict[str, Any],
) -> tuple[list[PlannedJob], str]:
    """A job for each node, and the name of the whole."""
    plan = fan_out.plan_name(options.pop("name"), ["copy"], words)
    nodes = fan_out.nodes_of(client, words)
    label = f"{plan} {key or os.urandom(8).hex()}"
    return fan_out.plan_of(ops, nodes, spread, options.pop("depends"), label), plan


def parsed(text: str) -> Target:
    """Nodes and path of a target; `UsageError` if it is none.

    >>> parsed("web1,tag:db:/srv/a:b")
    Target(words=['web1', 'tag:db'], path='/srv/a:b')
    """
    names, colon, path = text.partition(":/")
    words = choosing.words_of([names])
    if not (colon and words):
        raise errors.UsageError(
            f"NODE:PATH: expected nodes and an absolute path, such as web1:/srv/, got {text!r}"
        )
    return Target(words, f"/{path}")


def _source(name: str) -> str:
    """The file's absolute path; `UsageError` if it cannot be read."""
    path = Path(name).absolute()
    try:
        # A pipe without a writer would hold up who opens it otherwise.
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            kind = stat.S_IFMT(os.fstat(file).st_mode)
        finally:
            os.close(file)
    except OSError as error:
        raise errors.UsageError(f"{name}: {os.strerror(error.errno or 0)}") from error
    if kind != stat.S_IFREG:
        reason = os.strerror(errno.EISDIR) if kind == stat.S_IFDIR else "is no regular file"
        raise errors.UsageError(f"{name}: {reason}")
    return os.fspath(path)
