"""Makes the pictures of the page in `docs/plots`: the plan of `make demo`, seen in Chromium.

    .venv/bin/python -m docs.make_pictures

A daemon of its own runs the 58 jobs in a temporary folder. One more job holds a node, so that the
pictures have jobs that run and wait; one failure and its cause are in the plan.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from docs.examples.demo_plan import load_plan, name_of
from playwright.sync_api import sync_playwright

from ganger import Client
from ganger.storage.disk import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playwright.sync_api import Page

FOLDER = Path(__file__).with_name("plots")
HELD = "node12"
AFTER_HELD = (f"restore-{HELD}", "return-rack-c", "report")
"""The jobs of the plan that cannot run while the node is held."""

USER, PASSWORD = "alice", "only-for-pictures"
DEADLINE_SECONDS = 300.0
WIDE, NARROW = (1280, 720), (360, 640)
BYTES_MAX = 150_000


def submit(client: Client, scratch: Path) -> dict[str, int]:
    """Submit the plan, and the job that holds the node; their ids by name."""
    plan = load_plan(scratch, files=200)
    given = [job.as_submission() for job in plan]
    names = [name_of(job) for job in plan]
    ids = client.submit_many(given, plan="rolling-maintenance")
    found = dict(zip(names, ids, strict=True))
    firmware = {
        "OP_ID": "OP_EXEC",
        "argv": ["sh", "-c", "echo 'writing the firmware: do not switch it off'; exec sleep 900"],
        "locks": {"node": {"exclusive": [HELD]}},
    }
    after = [found[f"archive-{HELD}"]]
    found["firmware"] = client.submit(
        firmware, name=f"firmware-{HELD}", reason="security update", depends=after, priority=-10
    )
    sensors = {"OP_ID": "OP_EXEC", "argv": ["ipmitool", "sensor"], "locks": firmware["locks"]}
    more = [{"ops": [sensors], "name": f"sensors-{number}"} for number in range(1, 9)]
    client.submit_many(more, depends=after)
    client.wait(
        *(one for name, one in found.items() if name not in (*AFTER_HELD, "firmware")),
        timeout=DEADLINE_SECONDS,
    )
    return found


def take(page: Page, address: str, ids: Mapping[str, int]) -> None:
    """Take all pictures."""
    page.goto(address)
    page.get_by_label("Name").fill(USER)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.locator("tbody tr").first.wait_for()
    views = {
        "jobs": ("jobs", f".waits a[href='#/jobs/{ids[AFTER_HELD[0]]}']", WIDE),
        "failed": (f"jobs/{ids['verify-node05']}", "pre .stderr", WIDE),
        "skipped": (f"jobs/{ids['restore-node05']}", ".why.skipped", WIDE),
        "waiting": (f"jobs/{ids[AFTER_HELD[0]]}", ".why a", WIDE),
        "locks": ("locks", "svg.graph", WIDE),
        "timeline": ("timeline", "svg rect", WIDE),
        "submit": ("submit", "form", WIDE),
        "narrow": ("jobs", "tbody tr", NARROW),
    }
    for name, (view, awaited, (width, height)) in views.items():
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if name == "narrow" else "light")
        page.goto(f"{address}#/{view}")
        page.locator(f"main.{view.partition('/')[0].replace('jobs', 'job')}, main.jobs").wait_for()
        page.locator(awaited).first.wait_for()
        if name == "submit":
            page.get_by_label("Command", exact=True).fill(
                "rsync -a --delete '/srv/the site/' backup:"
            )
            page.get_by_label("Locks").fill("node/node07:shared")
        page.mouse.move(0, 0)
        path = FOLDER / f"page-{name}.png"
        page.screenshot(path=path)
        assert path.stat().st_size < BYTES_MAX, f"{path} is too large"


def main() -> None:
    """Make the pictures, and leave nothing else."""
    base = Path(tempfile.mkdtemp(prefix="ganger-pictures-"))
    places = paths.places(base / "data")

    def ganger(*words: str) -> None:
        command = [sys.executable, "-m", "ganger.cli.main", "--data", str(places.data), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    (base / "scratch").mkdir()
    try:
        ganger("rapi", "user", "add", USER, "--role", "admin", "--exec", "--password", PASSWORD)
        ganger("up", "--rapi-no-tls")
        with Client(places.data) as client, sync_playwright() as playwright:
            rapi = client.info().rapi
            assert rapi is not None
            ids = submit(client, base / "scratch")
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"),
                args=["--no-sandbox", "--disable-gpu"],
                env={**os.environ, "HOME": str(base), "TZ": "UTC"},
            )
            take(browser.new_page(), f"http://127.0.0.1:{rapi.port}/", ids)
            browser.close()
            client.cancel(ids["firmware"], kill=True)
            client.wait(*ids.values(), timeout=DEADLINE_SECONDS)
    finally:
        ganger("down")
        shutil.rmtree(base, ignore_errors=True)
        shutil.rmtree(places.run, ignore_errors=True)


if __name__ == "__main__":
    main()
