"""Each sentence of the pages for beginners that claims something names the tests that hold it.

`README.txt` and `first-steps.txt`, beside this file, have the sentences of a page in their order,
each with its tests below. A new or changed sentence is missing there: find or write its test.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest
from tests.claims import sentences

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
TABLES = {"README.md": HERE / "README.txt", "docs/first-steps.md": HERE / "first-steps.txt"}
WORDS_MAX = {"README.md": 900}


@pytest.mark.parametrize("page", TABLES)
def test_each_sentence_of_the_page_has_its_tests(page: str) -> None:
    written = sentences.of_page((ROOT / page).read_text(encoding="utf-8"))
    table = sentences.of_table(TABLES[page])
    assert [one for one in written if one not in table] == [], "sentences without a test"
    assert [one for one in table if one not in written] == [], "sentences that are gone"
    assert [one for one, tests in table.items() if not tests] == []


@pytest.mark.parametrize("page", TABLES)
def test_the_named_tests_exist(page: str) -> None:
    for sentence, tests in sentences.of_table(TABLES[page]).items():
        if tests != [sentences.NO_CLAIM]:
            missing = [one for one in tests if one.partition("::")[2] not in names(one)]
            assert missing == [], sentence


def names(test: str) -> frozenset[str]:
    """What is declared at the top of the file of this test."""
    return _names(ROOT / "tests" / test.partition("::")[0])


@functools.cache
def _names(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
    return frozenset(found)


@pytest.mark.parametrize("page", WORDS_MAX)
def test_the_page_stays_short(page: str) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").split()) <= WORDS_MAX[page]


def test_a_page_is_cut_into_its_sentences() -> None:
    text = (
        "# Head\n\nOne `a.b` here. **Two?** Three,\nwhich goes on: so.\n\n    code. More.\n\n"
        "```sh\nNo. No.\n```\n- An item. It\n  ends.\n\n"
        "| status | meaning |\n|---|---|\n| `x` | row |\n"
    )
    assert sentences.of_page(text) == [
        "One `a.b` here.",
        "**Two?",
        "Three, which goes on: so.",
        "- An item.",
        "It ends.",
        "| `x` | row |",
    ]
