"""What a process that runs tests tells the one that counts them: how each test went, and no more.

xdist sends six messages about each test, of which five say nothing if it went well. With 11,000
tests, to write and read them took a sixth of the processor time of `make quick`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run the test, and tell of what is counted."""
    for report in counted(runtestprotocol(item, log=False, nextitem=nextitem)):
        item.ihook.pytest_runtest_logreport(report=report)
    return True


def counted(reports: Iterable[pytest.TestReport]) -> list[pytest.TestReport]:
    """The call itself, and what went wrong or was skipped before and after it."""
    return [report for report in reports if report.when == "call" or not report.passed]
