"""The list of jobs in a real browser: many at once, long lists, and the archive."""

from __future__ import annotations

import re
import shutil
import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import wait_until_true
from tests.rapi.page import browsing
from tests.rapi.page.browsing import delay, ended, log_in, shell, visit
from tests.rapi.served import Served

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page, Route

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browsing.CHROMIUM is None, reason="Chromium is not installed"),
]


def test_chosen_jobs_are_canceled_reprioritised_and_retried_together(
    page: Page, served: Served
) -> None:
    mark = "many at once"
    holder = served.done("POST", "/2/jobs", {"ops": [delay(600.0, "node22")], "reason": mark})
    waiting = [
        served.done("POST", "/2/jobs", {"ops": [delay(0.1, "node22")], "reason": mark})
        for _ in range(3)
    ]
    over = ended(served, shell("exit 1"), reason=mark)
    log_in(page)
    page.get_by_label("Search").fill(mark)
    page.locator("tbody tr").nth(4).wait_for()
    page.locator("tbody tr").nth(5).wait_for(state="detached")
    for job_id in waiting:
        page.get_by_label(f"Choose job {job_id}", exact=True).check()
    bar = page.get_by_label("Chosen jobs")
    bar.get_by_role("button", name="Reprioritise 3").click()
    page.get_by_label("Priority, -20").fill("-3")
    page.get_by_role("dialog").get_by_role("button", name="Reprioritise 3 jobs").click()
    page.get_by_role("alert").filter(has_text="done for 3 jobs").wait_for()
    found = served.get("/2/queue?search=many&sort=id")["jobs"]
    assert [job["priority"] for job in found] == [0, -3, -3, -3, 0]
    page.get_by_label("Choose all jobs").check()
    bar.get_by_role("button", name="Retry 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry 1 job").click()
    page.get_by_role("alert").filter(has_text="Retry: done for 1 job").wait_for()
    page.locator("tbody tr").nth(5).wait_for()
    page.get_by_label("Choose all jobs").check()
    bar.get_by_role("button", name="Cancel 4").click()
    page.get_by_text("1 job of them runs, and will be stopped").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Cancel 4 jobs").click()
    page.get_by_role("alert").filter(has_text="done for 4 jobs").wait_for()
    with served.client() as client:
        found = client.wait(holder, *waiting, timeout=30.0)
    assert {str(job.outcome) for job in found} == {"killed", "canceled"}
    assert over


def test_who_may_change_some_jobs_is_offered_boxes_for_these_alone(
    page: Page, served: Served
) -> None:
    mark = "of two users"
    foreign = served.done("POST", "/2/jobs", {"ops": [shell("sleep 600")], "reason": mark})
    mixed = ended(served, delay(0.1), shell("true"), reason=mark)
    own = [ended(served, delay(0.1), reason=mark) for _ in range(3)]
    waiting = served.done("POST", "/2/jobs", {"ops": [delay(600.0)], "reason": mark})
    path = "/2/queue?search=of+two+users&sort=id"
    mine = {str(one): ["cancel", "filters", "submit"] for one in (*own, waiting)}
    allowed = {str(foreign): [], str(mixed): [], **mine}
    # The list follows the queue's events: the newest job may come a moment later.
    wait_until_true(lambda: len(served.get(path)["jobs"]) == len(allowed), "the list has all jobs")
    assert served.get(path, user="delayer")["may"] == allowed
    assert served.get(path)["may"] is served.get(path, user="reader")["may"] is None
    with served.client() as client:
        client.archive(own[2])
    archived = served.get(f"{path}&archived=1", user="delayer")
    assert archived["may"][str(own[2])] == ["cancel", "filters", "submit"]
    log_in(page, "delayer")
    visit(page, served, "jobs?search=of+two+users")
    boxes = page.locator("tbody input[type=checkbox]")
    page.locator("tbody tr").nth(4).wait_for()
    page.locator("tbody tr").nth(5).wait_for(state="detached")
    page.get_by_label("Choose all jobs").check()
    labels = boxes.evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    assert sorted(labels) == sorted(f"Choose job {one}" for one in (*own[:2], waiting))
    bar = page.get_by_label("Chosen jobs")
    bar.get_by_text("3 chosen").wait_for()
    bar.get_by_role("button", name="Cancel 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel 1 job").click()
    page.get_by_role("alert").filter(has_text="Cancel: done for 1 job").wait_for()
    # Where there is nothing to choose there is no column for it.
    visit(page, served, f"jobs?search={foreign}&status=running")
    boxes.first.wait_for(state="detached")
    page.get_by_role("link", name=str(foreign), exact=True).wait_for()
    assert page.locator(".tick").count() == 0
    served.request("DELETE", f"/2/jobs/{foreign}?kill=1")


def test_many_jobs_are_changed_on_a_phone_from_one_line(page: Page, served: Served) -> None:
    mark = "on a phone"
    holder = served.done("POST", "/2/jobs", {"ops": [delay(600.0, "node41")], "reason": mark})
    with served.client() as client:
        many = client.submit_many([[delay(0.1, "node41")]] * 1_200, reason=mark)
    over = ended(served, shell("exit 1"), reason=mark)
    page.set_viewport_size({"width": 360, "height": 640})
    log_in(page)
    visit(page, served, "jobs?search=on+a+phone")
    page.get_by_label(f"Choose job {holder}", exact=True).check()
    bar = page.get_by_label("Chosen jobs")
    bar.get_by_role("button", name="Choose all 1,202 that match").click()
    none = bar.get_by_role("button", name="Choose none")
    none.get_by_text("1,202").wait_for()
    place = "all => all.map((one) => one.getBoundingClientRect().toJSON())"
    buttons = bar.locator("button").evaluate_all(place)
    assert len(buttons) == 5
    assert len({one["top"] for one in buttons}) == 1
    assert all(one["left"] >= 0 and one["right"] <= 360 for one in buttons)
    assert all(one["height"] >= 30 for one in buttons)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    # The boxes follow before the server answers.
    held: list[Route] = []
    page.route(re.compile(r"/2/queue\?"), lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks it
    none.click()
    assert page.locator("tbody input:checked").count() == 0
    while held:
        held.pop().continue_()
    page.unroute(re.compile(r"/2/queue\?"))
    none.wait_for(state="detached")
    page.get_by_label(f"Choose job {many[0]}", exact=True).check()
    bar.get_by_role("button", name="Reprioritise 1").click()
    page.get_by_label("Priority, -20").fill("-5")
    page.get_by_role("dialog").get_by_role("button", name="Reprioritise 1 job").click()
    page.get_by_role("alert").filter(has_text="done for 1 job").wait_for()
    with served.client() as client:
        assert client.job(many[0]).priority == -5
        for job_id in reversed(many):
            client.cancel(job_id)
    served.request("DELETE", f"/2/jobs/{holder}?kill=1")
    assert over


def test_the_list_cuts_no_plan_and_no_button_on_a_phone(page: Page, served: Served) -> None:
    plan = "maintenance-of-rack-c"
    with served.client() as client:
        first, *_ = client.submit_many(
            [{"ops": [delay(0.1)], "name": "restore-node12"}] * 2, plan=plan
        )
        client.wait(first)
    page.set_viewport_size({"width": 360, "height": 640})
    page.reload()
    log_in(page)
    visit(page, served, f"jobs?search={plan}")
    page.locator(".plan", has_text=plan).nth(1).wait_for()
    # Both at once: the list may be drawn anew at any time.
    box = "one => document.querySelector(one).getBoundingClientRect().toJSON()"
    cell, chip = page.evaluate(f"() => ['td.what', 'td.what .plan'].map({box})")
    assert cell["left"] < chip["left"] < chip["right"] < cell["right"] <= 360
    assert chip["bottom"] < cell["bottom"]
    bar = page.locator("main .bar").first
    middles = bar.locator("> *").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect()).map((one) => one.top + one.bottom)"
    )
    assert len(middles) == 3
    assert max(middles) - min(middles) < 10
    assert page.get_by_label("Search").get_attribute("placeholder") == "Search"
    page.get_by_role("link", name="Submit a job").get_by_text("Submit", exact=True).wait_for()


def test_the_list_says_how_much_of_the_archive_is_left_out(page: Page, served: Served) -> None:
    log_in(page)
    part: list[float | None] = [0.429]

    def building(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "indexed": part[0]})

    page.route(re.compile(r"/2/queue\?"), building)
    visit(page, served, "jobs?archived=1")
    page.get_by_text("the index of the archive is being built, 42 % so far").wait_for()
    # It looks again by itself.
    part[0] = None
    page.get_by_text("Archived jobs are among these.").wait_for()
    page.unroute(re.compile(r"/2/queue\?"))


def test_a_list_with_the_archive_tells_which_part_is_in_the_index(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        with served.client() as client:
            client.add_filter(action="PAUSE")
            many = client.submit_many([[delay(0.1)]] * 1_100)
            for job_id in many:
                client.cancel(job_id)
                client.archive(job_id)
        served.run("down")
        shutil.rmtree(served.places.archive_index)
        served.up()
        path = "/2/queue?archived=1&limit=1000"
        found = served.get(path)
        assert 0.0 <= found["indexed"] < 1.0
        assert found["count"] < 1_000
        wait_until_true(lambda: served.get(path)["indexed"] is None, "the index is there again")
        assert served.get(path)["count"] == 1_000
        assert served.get("/2/queue")["indexed"] is None


def test_all_jobs_that_match_are_chosen_on_whatever_page(page: Page, served: Served) -> None:
    mark = "on all pages"
    holder = served.done("POST", "/2/jobs", {"ops": [delay(600.0, "node24")]})
    bad = ended(served, shell("exit 1"), reason=mark)
    with served.client() as client:
        many = client.submit_many([[delay(0.1, "node24")]] * 101, reason=mark)
    path = "/2/queue?search=on+all+pages&status=queued&limit=1"
    while (found := served.get(path))["count"] < len(many):
        # The page's process hears of the jobs a little later.
        pass
    # The counts are those of the search, whatever is chosen of it.
    assert (found["count"], found["counts"]["queued"], found["counts"]["running"]) == (101, 101, 0)
    assert found["outcomes"] == {**dict.fromkeys(found["outcomes"], 0), "failed": 1}
    log_in(page)
    visit(page, served, "jobs?search=on+all+pages")
    page.get_by_label(f"Choose job {bad}", exact=True).wait_for(state="detached")
    page.get_by_label(f"Choose job {many[0]}", exact=True).check()
    bar = page.get_by_label("Chosen jobs")
    bar.get_by_role("button", name="Choose all 102 that match").click()
    bar.get_by_text("102 chosen").wait_for()
    bar.get_by_role("button", name="Retry 1").wait_for()
    bar.get_by_role("button", name="Cancel 101").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel 101 jobs").click()
    page.get_by_role("alert").filter(has_text="done for 101 jobs").wait_for()
    with served.client() as client:
        assert {str(job.outcome) for job in client.wait(*many, timeout=30.0)} == {"canceled"}
    served.request("DELETE", f"/2/jobs/{holder}?kill=1")


def test_a_long_list_says_at_once_for_what_each_job_of_the_page_waits(
    page: Page, served: Served
) -> None:
    with served.client() as client:
        holder = client.submit([delay(600.0, "node31")])
        others = {f"node{n}": client.submit([delay(600.0, f"node{n}")]) for n in range(32, 36)}
        many = client.submit_many([[delay(0.1, "node31")]] * 1_200, reason="a long list")
        follower = client.submit([delay(0.1)], depends=[many[0]], reason="a long list")
        path = "/2/queue?search=a+long+list&limit=1"
        while served.get(path)["count"] < len(many) + 1:
            # The page's process hears of the jobs a little later.
            pass
        log_in(page)
        begin = time.monotonic()
        visit(page, served, "jobs?search=a+long+list&sort=id&page=7")
        page.locator("tbody tr").nth(99).wait_for()
        known = page.locator(".waits", has_text="waits for a lock: node/node31")
        known.nth(99).wait_for(timeout=1_000)
        assert time.monotonic() - begin < 2.0
        rows = served.get("/2/timeline")["rows"]
        assert {row["spans"][-1]["cause"] for row in rows[-200:]} == {"lock", "dependency"}
        visit(page, served, "jobs?search=a+long+list&sort=-id")
        page.get_by_text(f"waits for job {many[0]}").wait_for(timeout=1_000)
        assert client.causes([many[7], follower, holder]) == {
            many[7]: ("lock", "node/node31"),
            follower: ("dependency", str(many[0])),
        }
        for job_id in (follower, *reversed(many)):
            client.cancel(job_id)
        for job_id in (holder, *others.values()):
            client.cancel(job_id, kill=True)
