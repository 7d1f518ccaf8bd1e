"""Makes the client for ordinary Python from the client for asyncio.

Run it after changing transport/client/async_{client,cluster_verbs,queue_verbs,streams}.py; `make
check` and a test compare. What really differs between the two (waiting, threads, the event loop) is
written by hand, in `transport/client/caller` and `async_caller`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENTS = Path(__file__).parents[1] / "transport" / "client"
MADE = ("client.py", "cluster_verbs.py", "queue_verbs.py", "streams.py")
OUT_OF_DATE = "transport/client/{} is out of date: run .venv/bin/python docs/make_client.py"

HEAD = "# Made from async_{} by docs/make_client.py: change that file, then run the script.\n"

CLIENT_DOCSTRING = '''\
"""The client library for ordinary Python: submit jobs, follow them, ask the daemon.

>>> with Client() as client:  # doctest: +SKIP
...     job_id = client.submit({"OP_ID": "OP_EXEC", "argv": ["make", "backup"]})
...     client.wait(job_id)[0].status
<JobStatus.SUCCESS: 'success'>

`AsyncClient` (in `async_client`) has the same verbs as coroutines. Both are thin: `requests`
makes the messages, `session` decides when to send one again, `caller` waits for the reply.
"""

'''

SHARING = """\
    Any number of tasks of one event loop may use a client at the same time. A forked process
    cannot use a client of its parent: each verb raises `RuntimeError`.
"""

SHARING_MADE = """\
    Threads may share a client. They take turns, so a thread that follows jobs for long needs a
    client of its own.

    A forked process may use a client of its parent: the client connects anew. Calls and watches
    from before the fork belong to the parent; in the child they raise `RuntimeError`.
"""

WORDS = [
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    (r"\banext\b", "next"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basync_", ""),
    (r"__a(?=enter__|exit__)", "__"),
]


def main() -> None:
    """Write the files, or say which is out of date."""
    for name in MADE:
        path = CLIENTS / name
        text = made(name)
        is_old = not path.exists() or text != path.read_text(encoding="utf-8")
        if is_old and sys.argv[1:] == ["--check"]:
            sys.exit(OUT_OF_DATE.format(name))
        if is_old:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{name} is written anew\n")


def made(name: str) -> str:
    """The whole file, formatted."""
    source = (CLIENTS / f"async_{name}").read_text(encoding="utf-8")
    docstring, future, code = source.partition("\nfrom __future__")
    if name == "client.py":
        docstring = CLIENT_DOCSTRING
        head, sharing, rest = code.partition(SHARING)
        assert sharing, "the paragraph about sharing a client is not where it was"
        code = f"{head}{SHARING_MADE}{rest}"
    else:
        docstring = docstring.partition("\ndocs/make_client.py")[0] + '"""\n'
        docstring = docstring.replace("client for asyncio", "client")
    for pattern, text in WORDS:
        code = re.sub(pattern, text, code)
    fixes = "check", "--fix-only", "--unsafe-fixes", "--select=I,UP028"
    path = CLIENTS / name
    text = f"{HEAD.format(name)}{docstring}{future}{code}"
    return _ruff("format", path=path, text=_ruff(*fixes, path=path, text=text))


def _ruff(*words: str, path: Path, text: str) -> str:
    command = [sys.executable, "-m", "ruff", *words, "--quiet", f"--stdin-filename={path}", "-"]
    return subprocess.run(
        command, input=text, stdout=subprocess.PIPE, encoding="utf-8", check=True
    ).stdout


if __name__ == "__main__":
    main()
