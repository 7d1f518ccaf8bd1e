"""How large the house is: ``python -m bench.lines``.

Prints the lines of the product beside those of Ganeti's wing, of the lab and of made files, then
the largest file, and the functions that are longer than a screen.
"""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LAYERS = ("actors", "cli", "rapi", "storage", "transport")
MADE = {
    f"transport/client/{name}"
    for name in ("client.py", "cluster_verbs.py", "queue_verbs.py", "streams.py")
}
"""`docs/make_client.py` makes these."""

LINES_MAX = 63_000
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 50
PRODUCT = ("core", "ganeti", "lab")
"""The parts that people write and ship."""


class Function(NamedTuple):
    """A function that is too long."""

    lines: int
    place: str


def part_of(path: str) -> str:
    """Which part of the repository a file belongs to.

    >>> part_of("actors/queue/job_queue.py"), part_of("storage/ganeti/importing/parts.py")
    ('core', 'ganeti')
    >>> part_of("cli/lab/replay.py"), part_of("tests/actors/lab/test_measuring.py")
    ('lab', 'tests')
    >>> part_of("transport/client/client.py"), part_of("bench/lines.py")
    ('made', 'bench and docs')
    """
    layer, *folders = path.split("/")[:-1] or [""]
    if layer == "tests":
        return "tests"
    if layer not in LAYERS:
        return "bench and docs"
    if path in MADE:
        return "made"
    return next((wing for wing in ("ganeti", "lab") if wing in folders), "core")


def long_functions(path: str, text: str) -> list[Function]:
    """The functions of a file that have more than `FUNCTION_LINES_MAX` lines."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found.append(Function(lines, f"{path}:{node.lineno} {node.name}"))
    return found


def sources() -> list[str]:
    """The paths of all Python files that git knows, below the root."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for path in listed.stdout.split("\n") if (ROOT / path).is_file()]


def main() -> None:
    """Count and print."""
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in sources() if path}
    lines = {path: text.count("\n") for path, text in texts.items()}
    product = [path for path in texts if part_of(path) in PRODUCT]
    sums: Counter[str] = Counter()
    for path, count in lines.items():
        sums[part_of(path)] += count
    print(f"core      {sums['core']:>7}  (at most {LINES_MAX})")
    for name in ("ganeti", "lab", "made", "tests", "bench and docs"):
        print(f"{name:<10}{sums[name]:>7}")
    print(f"product   {sum(lines[path] for path in product) + sums['made']:>7}")
    print(f"files of the core: {sum(part_of(path) == 'core' for path in texts)}")
    print(f"\nFiles above {FILE_LINES_MAX} lines:")
    for path in sorted(product, key=lines.__getitem__, reverse=True):
        if lines[path] > FILE_LINES_MAX:
            print(f"{lines[path]:>6}  {path}")
    largest = max(product, key=lines.__getitem__)
    print(f"Largest file: {largest} ({lines[largest]})")
    print(f"\nFunctions above {FUNCTION_LINES_MAX} lines:")
    for found in sorted(one for path in product for one in long_functions(path, texts[path])):
        print(f"{found.lines:>6}  {found.place}")


if __name__ == "__main__":
    main()
