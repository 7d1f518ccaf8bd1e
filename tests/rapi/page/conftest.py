"""One browser with one tab for all tests of the page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.rapi.page.browsing import CHROMIUM, FORGET, WAITS_MS, opened
from tests.rapi.served import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where it is used

    home = tmp_path_factory.mktemp("home")
    options = (
        "--no-sandbox --disable-gpu --in-process-gpu --disable-quic --no-first-run --disable-sync"
    )
    quiet = "--disable-background-networking --disable-component-update"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[*options.split(), *quiet.split()],
            env={**os.environ, "HOME": str(home)},
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def tab(browser: Browser) -> Iterator[Page]:
    """A tab that the tests share: a new one costs more than most of them."""
    context = browser.new_context(ignore_https_errors=True)
    context.set_default_timeout(WAITS_MS)
    context.add_init_script(FORGET)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(tab: Page, served: Served) -> Iterator[Page]:
    """The page, loaded anew, of a daemon that the tests share."""
    with opened(tab, served) as page:
        yield page


@pytest.fixture
def page_of_its_own(tab: Page, tmp_path: Path) -> Iterator[Page]:
    """The page of a fresh daemon."""
    with Served(tmp_path, has_tls=True) as served, opened(tab, served) as page:
        yield page
