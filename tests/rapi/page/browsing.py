"""Drives the page in a real browser: Debian's Chromium, without a screen, by Playwright."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.rapi.served import Served, password

if TYPE_CHECKING:
    from playwright.sync_api import Error, Page, ViewportSize

CHROMIUM = shutil.which("chromium")

WAITS_MS = 15_000
FORGET = "if (name === '') { name = 'loaded'; sessionStorage.clear(); }"
"""Run by the tab before each document: nothing is left of an earlier test, and all within one."""

SCREEN: ViewportSize = {"width": 1280, "height": 720}


@contextlib.contextmanager
def opened(tab: Page, served: Served) -> Iterator[Page]:
    """The page, with nothing left of what was shown before; no script may fail."""
    problems: list[str] = []

    def note(error: Error) -> None:
        problems.append(str(error))

    tab.set_viewport_size(SCREEN)
    tab.emulate_media(color_scheme="light")
    # An address without # loads anew, and then `FORGET` does.
    tab.evaluate("name = ''")
    tab.goto(f"https://127.0.0.1:{served.port}/")
    tab.on("pageerror", note)
    yield tab
    tab.remove_listener("pageerror", note)
    assert problems == []


def log_in(page: Page, user: str = "admin") -> None:
    page.get_by_label("Name").fill(user)
    page.get_by_label("Password").fill(password(user))
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Jobs").wait_for()


def go(page: Page, view: str) -> None:
    page.get_by_role("link", name=view, exact=True).click()
    page.get_by_role("heading", name=re.compile(view, re.IGNORECASE)).first.wait_for()


def submit(page: Page, *ops: dict[str, Any], reason: str = "") -> int:
    go(page, "Jobs")
    page.get_by_role("link", name="Submit a job").click()
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Opcodes, as JSON").fill(json.dumps(ops))
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("heading", name=re.compile(r"Job \d+")).wait_for()
    return int(page.url.rpartition("/")[2])


def delay(seconds: float, *nodes: str) -> dict[str, Any]:
    return {
        "OP_ID": "OP_TEST_DELAY",
        "duration": seconds,
        "on_master": False,
        "on_nodes": list(nodes),
    }


def ended(served: Served, *ops: dict[str, Any], **more: Any) -> int:
    """The id of a job that has ended, submitted past the page."""
    job_id: int = served.done("POST", "/2/jobs", {"ops": [*ops], **more})
    with served.client() as client:
        client.wait(job_id, timeout=30.0)
    return job_id


def visit(page: Page, served: Served, view: str) -> None:
    page.goto(f"https://127.0.0.1:{served.port}/#/{view}")


def shell(script: str) -> dict[str, Any]:
    return {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", script]}


def status_is(page: Page, status: str) -> None:
    page.locator("dl .status", has_text=status).wait_for()


def confirm(page: Page, button: str, action: str) -> None:
    page.get_by_role("button", name=button, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=action).click()
