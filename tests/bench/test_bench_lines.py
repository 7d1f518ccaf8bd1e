from __future__ import annotations

import pytest
from bench.lines import (
    FILE_LINES_MAX,
    FUNCTION_LINES_MAX,
    MADE,
    PRODUCT,
    long_functions,
    part_of,
    sources,
)
from tests.checkout import ROOT


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("actors/queue/job_queue.py", "core"),
        ("storage/ganeti/importing/parts.py", "ganeti"),
        ("cli/lab/replay.py", "lab"),
        ("transport/client/client.py", "made"),
        ("transport/client/async_client.py", "core"),
        ("tests/actors/lab/test_measuring.py", "tests"),
        ("docs/make_client.py", "bench and docs"),
        ("__init__.py", "bench and docs"),
    ],
)
def test_each_file_belongs_to_one_part(path: str, part: str) -> None:
    assert part_of(path) == part


def test_the_made_files_are_those_that_the_script_makes() -> None:
    script = (ROOT / "docs/make_client.py").read_text(encoding="utf-8")
    names = ", ".join(f'"{path.rpartition("/")[2]}"' for path in sorted(MADE))
    assert f"MADE = ({names})" in script


def test_a_function_is_long_from_one_line_above_the_limit_on() -> None:
    def source(lines: int) -> str:
        return "class A:\n    def f(self):\n" + "        pass\n" * (lines - 1)

    assert long_functions("a.py", source(FUNCTION_LINES_MAX)) == []
    [found] = long_functions("a.py", source(FUNCTION_LINES_MAX + 1))
    assert found == (FUNCTION_LINES_MAX + 1, "a.py:2 f")


def test_no_file_and_no_function_of_the_product_is_too_long() -> None:
    paths = [path for path in sources() if path and part_of(path) in PRODUCT]
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
    assert texts
    assert [path for path, text in texts.items() if text.count("\n") > FILE_LINES_MAX] == []
    assert [found for path, text in texts.items() for found in long_functions(path, text)] == []
