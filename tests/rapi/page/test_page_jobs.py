"""The page in a real browser: the list of jobs, one job, and the form for a new one."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.rapi.page import browsing
from tests.rapi.page.browsing import delay, ended, go, log_in, shell, visit
from tests.rapi.served import Served

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browsing.CHROMIUM is None, reason="Chromium is not installed"),
]


def test_the_form_for_a_job_says_why_it_was_refused(page: Page) -> None:
    log_in(page)
    page.get_by_role("link", name="Submit a job").click()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("alert").filter(has_text="The command is empty").wait_for()
    page.get_by_text("More", exact=True).click()
    refused = [
        ("[{", re.compile("JSON")),
        ('[{"OP_ID": "OP_NO\\u202eNE"}]', re.compile(r"OP_NO\\u202eNE")),
    ]
    for text, problem in refused:
        page.get_by_label("Opcodes, as JSON").fill(text)
        page.get_by_role("button", name="Submit", exact=True).click()
        page.get_by_role("alert").filter(has_text=problem).wait_for()


def test_a_job_says_first_why_it_ended_with_a_link_to_the_cause(page: Page, served: Served) -> None:
    cause = ended(served, shell("echo boom >&2; exit 7"))
    skipped = ended(served, shell("true"), depends=[cause])
    log_in(page)
    visit(page, served, f"jobs/{skipped}")
    why = page.get_by_label("Why it ended")
    why.get_by_text("Skipped").wait_for()
    order = "all => all.map((one) => one.getBoundingClientRect().top)"
    tops = page.locator("h1, .why, .bar button, dl, pre").evaluate_all(order)
    assert tops[:3] == sorted(tops)[:3]
    depends = page.locator("ul.around", has_text=str(cause))
    depends.locator(".status.failed").wait_for()
    why.get_by_role("link", name=f"job {cause}").first.click()
    page.get_by_role("heading", name=f"Job {cause}").wait_for()
    why.get_by_text("exit code 7; last line: boom").wait_for()
    # The one that it kept from starting is there, though nothing waits any more.
    page.locator("ul.around", has_text=str(skipped)).locator(".status.skipped").wait_for()


def test_opcodes_say_what_happened_to_each_as_their_job_does(page: Page, served: Served) -> None:
    failed = ended(served, shell("true"), shell("exit 4"), shell("true"))
    log_in(page)
    visit(page, served, f"jobs/{failed}")
    page.get_by_label("Why it ended").get_by_text("exit code 4").wait_for()
    opcodes = page.get_by_role("table", name="Opcodes").locator(".status")
    assert opcodes.all_inner_texts() == ["success", "failed", "skipped"]


def test_a_job_that_ended_shows_those_that_needed_it_and_have_ended_too(
    page: Page, served: Served
) -> None:
    first = ended(served, shell("true"))
    second = ended(served, shell("true"), depends=[first])
    alarm = ended(served, shell("true"), depends=[[first, ["error"]]])
    other = ended(served, shell("true"))
    found = served.get(f"/2/queue/{first}", user="reader")
    assert found["dependents"] == [second, alarm]
    assert served.get(f"/2/queue/{other}")["dependents"] == []
    log_in(page)
    visit(page, served, f"jobs/{first}")
    needed = page.locator("h2", has_text="Needed by").locator("+ ul li")
    needed.nth(1).get_by_text("skipped").wait_for()
    needed.nth(0).get_by_text("success").wait_for()
    assert needed.count() == 2


def test_what_is_chosen_stands_in_the_address(page: Page, served: Served) -> None:
    mark = "in the address"
    good = ended(served, shell("true"), reason=mark)
    bad = ended(served, shell("exit 3"), reason=mark)
    log_in(page)
    link = {one: page.get_by_role("link", name=str(one), exact=True) for one in (good, bad)}
    page.get_by_label("Search").fill(mark)
    link[good].wait_for()
    page.get_by_label("States").get_by_role("link", name="failed").click()
    link[good].wait_for(state="detached")
    link[bad].wait_for()
    address = page.url
    assert address.partition("#")[2] == "/jobs?search=in+the+address&outcome=failed"
    page.go_back()
    link[good].wait_for()
    page.get_by_role("link", name="Id", exact=True).click()
    first = page.locator("tbody tr").first
    first.get_by_role("link", name=str(bad), exact=True).wait_for()
    page.get_by_role("link", name="Id").click()
    first.get_by_role("link", name=str(good), exact=True).wait_for()
    assert page.get_by_role("columnheader", name="Id").get_attribute("aria-sort") == "ascending"
    # The same address in another tab shows the same.
    page.goto("about:blank")
    page.goto(address)
    link[bad].wait_for()
    assert link[good].count() == 0
    assert page.get_by_label("Search").input_value() == mark
    whole = page.locator("tbody time").first.get_attribute("title") or ""
    assert re.fullmatch(r"\w+day, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+", whole)


def test_archived_jobs_are_found_on_request(page: Page, served: Served) -> None:
    mark = "for the archive"
    old = ended(served, shell("exit 4"), reason=mark)
    kept = ended(served, shell("true"), reason=mark)
    with served.client() as client:
        client.archive(old)
    log_in(page)
    visit(page, served, f"jobs?search={mark.replace(' ', '+')}")
    rows = page.locator("tbody tr")
    page.get_by_role("link", name="Look into the archive").click()
    rows.nth(1).get_by_text("exit code 4").wait_for()
    rows.nth(0).get_by_role("link", name=str(kept), exact=True).wait_for()
    # No event tells that a job is archived.
    while [job["id"] for job in served.get("/2/queue?search=archive")["jobs"]] != [kept]:
        pass
    found = served.get("/2/queue?archived=1&outcome=failed&search=archive&limit=1")
    assert [(job["id"], job["archived"]) for job in found["jobs"]] == [(old, True)]
    page.get_by_role("link", name="Without the archive").click()
    page.get_by_role("link", name="Look into the archive").wait_for()


def test_running_and_waiting_jobs_come_first_and_their_time_ticks(
    page: Page, served: Served
) -> None:
    running = served.done("POST", "/2/jobs", {"ops": [delay(600.0, "node21")]})
    waiting = served.done("POST", "/2/jobs", {"ops": [delay(0.1, "node21")]})
    ended(served, shell("true"))
    log_in(page)
    rows = page.locator("tbody tr")
    rows.nth(0).get_by_role("link", name=str(running), exact=True).wait_for()
    rows.nth(1).get_by_role("link", name=str(waiting), exact=True).wait_for()
    # The causes of waits are asked for now and then.
    rows.nth(1).get_by_text("waits for a lock: node/node21").wait_for()
    text = page.locator("[data-since]").first.inner_text()
    script = "(text) => document.querySelector('[data-since]').textContent !== text"
    page.wait_for_function(script, arg=text)
    page.get_by_label("States").get_by_role("link", name="running").click()
    rows.nth(1).wait_for(state="detached")
    for job_id in (running, waiting):
        served.request("DELETE", f"/2/jobs/{job_id}?kill=1")


def test_a_row_keeps_its_height_when_the_cause_of_its_wait_is_known(
    page: Page, served: Served
) -> None:
    holder = served.done("POST", "/2/jobs", {"ops": [delay(600.0, "node23")]})
    waiting = served.done("POST", "/2/jobs", {"ops": [delay(0.1, "node23")]})
    is_known = False

    def fulfil(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        body["waits"] = {str(waiting): ["lock", "node/node23"]} if is_known else {}
        route.fulfill(response=answer, json=body)

    page.route("**/2/queue?*", fulfil)
    log_in(page)
    row = page.locator("tbody tr", has=page.get_by_role("link", name=str(waiting), exact=True))
    row.get_by_text("waits", exact=True).wait_for()
    height = row.bounding_box()
    is_known = True
    row.get_by_text("waits for a lock: node/node23").wait_for()
    assert row.bounding_box() == height
    page.unroute("**/2/queue?*")
    for job_id in (waiting, holder):
        served.request("DELETE", f"/2/jobs/{job_id}?kill=1")


def test_a_command_is_submitted_as_its_arguments_with_locks_and_all(
    page: Page, served: Served
) -> None:
    log_in(page)
    page.get_by_role("link", name="Submit a job").click()
    page.get_by_label("Command", exact=True).fill("printf '%s|' \"two words\" $HOME")
    parted = page.get_by_label("The command's arguments")
    parted.get_by_text("two words", exact=True).wait_for()
    assert parted.locator("code").all_inner_texts() == ["printf", "%s|", "two words", "$HOME"]
    assert "No shell reads this" in parted.inner_text()
    page.get_by_label("Locks").fill("node/n1, instance/web:shared")
    page.get_by_label("Working directory").fill("/tmp")
    page.get_by_label("Timeout").fill("5m")
    page.get_by_label("Reason").fill("by hand")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_label("Log and output").get_by_text(
        "%s|two words|$HOME|".removeprefix("%s|")
    ).wait_for()
    job = served.get(f"/2/queue/{page.url.rpartition('/')[2]}")["job"]
    given = job["ops"][0]["input"]
    assert given["argv"] == ["printf", "%s|", "two words", "$HOME"]
    assert given["locks"] == {"node": {"exclusive": ["n1"]}, "instance": {"shared": ["web"]}}
    assert (given["cwd"], given["timeout"], job["reason"]) == ("/tmp", 300, "by hand")
    page.go_back()
    page.get_by_label("Let a shell read it").check()
    page.get_by_label("Command", exact=True).fill("echo a | tr a b")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_label("Log and output").get_by_text("b", exact=True).wait_for()
    for field, text, problem in (
        ("Locks", "node", "expected locks such as node/n1"),
        ("Timeout", "soon", "expected a time such as 90"),
    ):
        visit(page, served, "jobs")
        page.get_by_role("link", name="Submit a job").click()
        page.get_by_label("Command", exact=True).fill("true")
        page.get_by_label(field).fill(text)
        page.get_by_role("button", name="Submit", exact=True).click()
        page.get_by_role("alert").filter(has_text=problem).wait_for()


def test_a_job_comes_after_others_by_id_and_by_name(page: Page, served: Served) -> None:
    first = ended(served, shell("true"), name="not this one, nightly")
    older = ended(served, shell("true"), name="nightly backup")
    newest = ended(served, shell("true"), name="nightly backup")
    longer = ended(served, shell("true"), name="nightly backup of web1")
    log_in(page)
    page.get_by_role("link", name="Submit a job").click()
    page.get_by_label("Command", exact=True).fill("true")
    page.get_by_text("More", exact=True).click()
    after = page.get_by_label("After these jobs")
    after.fill("nightly")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("alert").filter(has_text="After: there is no job called nightly").wait_for()
    after.fill(f"{first} {older}, nightly backup, {longer}")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("heading", name=re.compile(r"Job \d+")).wait_for()
    job = served.get(f"/2/queue/{page.url.rpartition('/')[2]}")["job"]
    depends = job["ops"][0]["input"]["depends"]
    assert [one for one, _ in depends] == [first, older, newest, longer]


@pytest.mark.parametrize("user", ["writer", "tagger"])
def test_who_may_run_no_commands_is_offered_none_and_told_who_grants_it(
    page: Page, user: str
) -> None:
    log_in(page, user)
    page.get_by_role("link", name="Submit a job").click()
    page.get_by_text(f"ganger rapi user change {user} --exec").wait_for()
    assert page.get_by_label("Command", exact=True).count() == 0
    page.get_by_label("Opcodes, as JSON").fill('[{"OP_ID": "OP_EXEC", "argv": ["true"]}]')
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("alert").filter(has_text="ganger rapi user change").wait_for()


def test_who_may_submit_one_opcode_is_offered_what_he_may_and_that_works(
    page: Page, served: Served
) -> None:
    foreign = served.done("POST", "/2/jobs", {"ops": [shell("sleep 600")]})
    rule = served.done("POST", "/2/rules", {"predicates": [["jobid", ["=", "id", foreign]]]})
    log_in(page, "delayer")
    buttons = page.locator(".bar button")
    visit(page, served, f"jobs/{foreign}")
    page.get_by_label("What it does").get_by_text("Running").wait_for()
    assert buttons.count() == 0
    go(page, "Rules")
    page.get_by_role("cell", name=f"job {foreign}").wait_for()
    assert page.get_by_role("button", name="Delete").count() == 0
    assert page.get_by_label("Opcodes", exact=False).first.input_value() == "OP_TEST_DELAY"
    go(page, "Jobs")
    page.get_by_role("link", name="Submit a job").click()
    page.get_by_text("You may submit: OP_TEST_DELAY").wait_for()
    page.get_by_label("Opcodes, as JSON").fill(json.dumps([delay(600.0, "node25")]))
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_label("What it does").get_by_text("Running").wait_for()
    assert buttons.all_inner_texts() == ["Stop", "Priority", "Pause"]
    job_id = int(page.url.rpartition("/")[2])
    browsing.confirm(page, "Pause", "Pause the job")
    page.get_by_role("alert").filter(has_text="Done").wait_for()
    [paused] = [one for one in served.get("/2/rules", user="delayer") if one["may_change"]]
    assert ["jobid", ["==", "id", job_id]] in paused["predicates"]
    browsing.confirm(page, "Stop", "Stop the job")
    page.get_by_label("Why it ended").get_by_text("Killed").wait_for()
    assert buttons.all_inner_texts() == ["Retry"]
    served.done("DELETE", f"/2/filters/{paused['uuid']}", user="delayer")
    served.done("DELETE", f"/2/filters/{rule}")
    served.request("DELETE", f"/2/jobs/{foreign}?kill=1")


def test_a_command_is_split_as_a_shell_splits_it(page: Page) -> None:
    lines = [
        "a  b\tc",
        "'a b' \"c d\"",
        "a\\ b '' \"\"",
        "x'y'\"z\"",
        '"a\\"b\\c" \'d\\e\'',
        "a\\\nb",
        "it\\'s",
    ]
    script = """async (lines) => {
        const { quoted, split } = await import("/page_words.js");
        return lines.map((line) => [split(line).argv, split(quoted(split(line).argv)).argv]);
    }"""
    for line, (found, again) in zip(lines, page.evaluate(script, lines), strict=True):
        shell_words = subprocess.run(
            ["sh", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True
        ).stdout.split("\0")[:-1]
        assert found == again == shell_words
