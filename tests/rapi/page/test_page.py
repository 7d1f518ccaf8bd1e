"""The page in a real browser: what a session with it looks like."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.rapi.page import browsing
from tests.rapi.page.browsing import confirm, delay, go, log_in, shell, status_is, submit
from tests.rapi.served import Served, password

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browsing.CHROMIUM is None, reason="Chromium is not installed"),
]


def test_characters_that_hide_others_are_shown_by_their_numbers(page: Page) -> None:
    """In the command, in what it prints, and in the reason."""
    log_in(page)
    turned = "safe\u202egpj.exe\u2066"
    script = (
        r"printf '\357\273\277one\033[2Ktwo\rthree\342\200\256four\tfive\nsix\r\n'; : " + turned
    )
    submit(page, shell(script), reason=f"why \u200b{turned}")
    status_is(page, "success")
    log = page.get_by_label("Log and output")
    log.get_by_text("six").wait_for()
    text = log.inner_text()
    assert r"\ufeffone\u001b[2Ktwo\u000dthree\u202efour" in text
    assert "four\tfive\nsix" in text
    page.get_by_text("parameters").click()
    whole = page.locator("main").inner_text()
    assert not set(whole) & set("\x1b\u202e\u2066\u200b")
    assert whole.count(r"safe\u202egpj.exe\u2066") >= 2
    assert r"why \u200bsafe\u202e" in whole
    titles = page.locator(".sign").evaluate_all("all => all.map((one) => one.title)")
    assert "The character U+202E" in titles


def test_a_wrong_password_is_named_and_the_browser_does_not_ask_itself(page: Page) -> None:
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    assert "not known" in page.get_by_role("alert").first.inner_text()
    log_in(page)


def test_an_empty_queue_says_so_and_tabs_stay_in_view(page_of_its_own: Page) -> None:
    page = page_of_its_own
    log_in(page)
    page.get_by_text("There are no jobs.", exact=True).wait_for()
    page.get_by_label("Search").fill("backup")
    page.get_by_text("No job matches.", exact=True).wait_for()
    page.set_viewport_size({"width": 400, "height": 300})
    for view in ("Rules", "Health", "Jobs"):
        go(page, view)
        page.wait_for_function("document.activeElement.id === 'main'")
        # The view before had the focus, too: the new one may come a moment later.
        page.wait_for_function("document.getElementById('tabs').getBoundingClientRect().top >= 0")
    # Also when somebody scrolls.
    go(page, "Rules")
    page.evaluate("scrollTo(0, 200)")
    top = "[scrollY, document.getElementById('top').getBoundingClientRect().top]"
    assert page.evaluate(top) == [200, 0]
    page.get_by_role("link", name="Skip to content").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")
    assert page.url.endswith("#/rules")


def test_a_job_runs_is_held_by_a_rule_says_why_and_finishes_without_the_rule(
    page: Page, served: Served
) -> None:
    log_in(page)
    # Submit, and watch it run.
    first = submit(page, shell("echo hello there; echo oops >&2"), reason="first of all")
    status_is(page, "success")
    page.get_by_text("hello there", exact=True).wait_for()
    assert page.locator("pre .stderr").inner_text().strip() == "oops"
    # A rule that pauses, with a look at what it would do.
    go(page, "Rules")
    page.get_by_label("Opcodes").fill("OP_EXEC")
    page.get_by_label("Reason", exact=True).fill("the disk is being replaced")
    page.get_by_role("button", name="What would it do?").click()
    page.get_by_text("would start at once").wait_for()
    page.get_by_role("button", name="Add the rule").click()
    page.get_by_role("cell", name="PAUSE").wait_for()
    # A job that waits, and why.
    second = submit(page, shell("echo done"))
    assert second > first
    why = page.get_by_label("Why it waits")
    why.get_by_text("the disk is being replaced").wait_for()
    # Without the rule it finishes; the rule has counted it.
    go(page, "Rules")
    row = page.get_by_role("row", name=re.compile("PAUSE"))
    assert re.search(r"\b1\b", row.inner_text())
    page.get_by_role("button", name="Delete rule").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete the rule").click()
    page.get_by_text("There are no filter rules").wait_for()
    page.goto(f"https://127.0.0.1:{served.port}/#/jobs/{second}")
    status_is(page, "success")
    # The list finds jobs by words.
    go(page, "Jobs")
    page.get_by_label("Search").fill("first of")
    page.get_by_role("link", name=str(first), exact=True).wait_for()
    page.get_by_role("link", name=str(second), exact=True).wait_for(state="detached")


def test_contention_is_seen_in_locks_and_timeline_and_a_running_job_is_stopped(
    page: Page, served: Served
) -> None:
    log_in(page)
    holder = submit(page, delay(600.0, "node7"))
    waiter = submit(page, delay(0.1, "node7"))
    page.get_by_label("Why it waits").get_by_text("node/node7").wait_for()
    go(page, "Locks")
    page.locator("svg text", has_text="node/node7").wait_for()
    go(page, "Timeline")
    page.locator(".panel .cause-lock").first.wait_for()
    page.locator(".panel .cause-running").first.wait_for()
    page.get_by_label("Rows").select_option("resource")
    page.locator("svg text", has_text="lock node/node7").wait_for()
    page.goto(f"https://127.0.0.1:{served.port}/#/jobs/{holder}")
    confirm(page, "Stop", "Stop the job")
    status_is(page, "killed")
    page.goto(f"https://127.0.0.1:{served.port}/#/jobs/{waiter}")
    status_is(page, "success")
    confirm(page, "Retry", "Retry the job")
    page.get_by_role("heading", name=f"Job {waiter + 1}").wait_for()
    go(page, "Health")
    page.get_by_role("cell", name="job_queue").wait_for()
    page.get_by_text(re.compile(r"\d+ node groups?, \d+ nodes?, ")).wait_for()


def test_a_pending_job_gets_another_priority_and_is_paused_and_canceled(page: Page) -> None:
    log_in(page)
    submit(page, delay(600.0, "node8"))
    submit(page, delay(0.1, "node8"))
    page.get_by_role("button", name="Priority").click()
    page.get_by_label("Priority, -20").fill("-7")
    page.get_by_role("dialog").get_by_role("button", name="Change the priority").click()
    page.locator("dd", has_text=re.compile(r"^-7$")).wait_for()
    confirm(page, "Pause", "Pause the job")
    page.get_by_label("Why it waits").get_by_text("filter rule").first.wait_for()
    confirm(page, "Cancel", "Cancel the job")
    status_is(page, "canceled")


def test_a_reader_sees_everything_and_is_offered_nothing(page: Page, served: Served) -> None:
    log_in(page, "reader")
    assert page.get_by_role("link", name="Submit a job").count() == 0
    job_id = served.done("POST", "/2/jobs", {"ops": [delay(0.1)]})
    page.goto(f"https://127.0.0.1:{served.port}/#/jobs/{job_id}")
    status_is(page, "success")
    assert page.get_by_role("button", name="Retry").count() == 0
    go(page, "Rules")
    assert page.get_by_role("button", name="Add the rule").count() == 0


def test_a_narrow_dark_screen_shows_all_views_without_scrolling_sideways(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    page.emulate_media(color_scheme="dark")
    page.reload()
    log_in(page)
    for view in ("Jobs", "Rules", "Locks", "Timeline", "Health"):
        go(page, view)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, f"{view} is {width} pixels wide"
        tops = page.locator("#tabs a, #logout").evaluate_all(
            "all => all.map((one) => one.getBoundingClientRect().top)"
        )
        assert max(tops) - min(tops) < 10, f"the tabs of {view} take more than one line"
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == "rgb(22, 24, 28)"


def test_the_page_is_used_by_keyboard_alone(page: Page) -> None:
    page.get_by_label("Name").focus()
    page.keyboard.type("admin")
    page.keyboard.press("Tab")
    page.keyboard.type(password("admin"))
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Jobs").wait_for()
    page.wait_for_function("document.activeElement.id === 'main'")
    for _ in range(10):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.textContent") == "Rules":
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Filter rules").wait_for()


def test_nothing_comes_from_elsewhere(page: Page, served: Served) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    log_in(page)
    for view in ("Rules", "Timeline", "Health"):
        go(page, view)
    here = f"https://127.0.0.1:{served.port}/"
    assert asked
    assert [url for url in asked if not url.startswith(here)] == []


def test_whatever_jobs_and_rules_say_is_text_and_letters_stay_whole(
    page: Page, served: Served
) -> None:
    evil = "<img src=x onerror=window.evil=1>"
    log_in(page)
    # A letter comes in two pieces, with some time between them.
    letters = r"for _ in 1 2 3; do printf '\303'; sleep 0.3; printf '\244'; done"
    submit(page, shell(f"printf '%s' '{evil}'; {letters}"), reason=evil)
    status_is(page, "success")
    page.get_by_label("Log and output").get_by_text("success").wait_for()
    assert f"{evil}äää" in page.get_by_label("Log and output").inner_text()
    rule = served.done(
        "POST", "/2/rules", {"reason": evil, "predicates": [["jobid", ["=", "id", 1]]]}
    )
    for view in ("Rules", "Jobs"):
        go(page, view)
        page.locator("td .faint", has_text=evil).first.wait_for()
    go(page, "Timeline")
    served.done("DELETE", f"/2/filters/{rule}")
    # The message of an error comes with entities.
    page.goto(f"https://127.0.0.1:{served.port}/#/jobs/7<img src=x>")
    page.get_by_role("button", name="Try again").wait_for()
    assert page.evaluate("[document.images.length, typeof window.evil]") == [0, "undefined"]


def test_times_and_numbers_are_said_in_words(page: Page) -> None:
    script = """async (seconds) => {
        const { span, count, moment } = await import("/page_parts.js");
        const today = moment(Date.now() / 1000), long_ago = moment(86400 * 365);
        return [seconds.map(span), [0, 1, 2, 1234].map((one) => count(one, "job")),
                [moment(null), long_ago.includes("1971"), long_ago.length > today.length]];
    }"""
    seconds = [None, -0.5, 0, 0.26, 10, 59.4, 59.6, 185, 3599, 3600, 7_800, 86_399, 86_400, 273_600]
    spans, counts, moments = page.evaluate(script, seconds)
    assert spans == [
        *("", "0.0 s", "0.0 s", "0.3 s", "10 s", "59 s", "1 min 0 s", "3 min 5 s", "59 min 59 s"),
        *("1 h 0 min", "2 h 10 min", "23 h 59 min", "1 d 0 h", "3 d 4 h"),
    ]
    assert counts == ["0 jobs", "1 job", "2 jobs", "1,234 jobs"]
    assert moments == ["", True, True]


def test_each_job_that_a_text_names_is_a_link_and_no_other_number(page: Page) -> None:
    script = """async (text) => {
        const { h, linked } = await import("/page_parts.js");
        const found = h("p", { hidden: true, title: null, lang: false }, linked(text));
        const links = [...found.querySelectorAll("a")].map((one) => one.getAttribute("href"));
        return [found.textContent, links, found.getAttributeNames()];
    }"""
    text = "job 17 waits for jobs 3, 4 and 5, and for 2 locks of node 9; <b>job 6</b>"
    links = [f"#/jobs/{number}" for number in (17, 3, 4, 5, 6)]
    assert page.evaluate(script, text) == [text, links, ["hidden"]]


def test_a_stream_that_breaks_is_followed_from_its_last_event(page: Page) -> None:
    """Also one that comes in any pieces; and an end that the reader wants is no loss."""
    script = """async (answers) => {
        const { follow } = await import("/page_api.js");
        const asked = [], heard = [], lost = [];
        window.fetch = async (path, { headers }) => {
            asked.push(headers["Last-Event-ID"] ?? null);
            const pieces = answers.shift();
            if (typeof pieces === "number") return new Response("{}", { status: pieces });
            const encoded = pieces.map((piece) => new TextEncoder().encode(piece));
            return new Response(new ReadableStream({
                start(end) { encoded.forEach((one) => end.enqueue(one)); end.close(); },
            }));
        };
        const hear = (kind, data) => { heard.push([kind, data]); return data !== "last"; };
        await follow("/events", hear, new AbortController().signal, (is) => lost.push(is));
        return [asked, heard, lost];
    }"""
    answers = [
        ["id: 4\neve", 'nt: log\ndata: "on', 'e"\n\n: a comment\n\ndata: 2\n\nid: 5\ndata: "torn'],
        503,
        ['id: 6\ndata: "last"\n\ndata: "unread"\n\n'],
    ]
    asked, heard, lost = page.evaluate(script, answers)
    assert asked == [None, "4", "4"]
    assert heard == [["log", "one"], ["message", 2], ["message", "last"]]
    assert lost == [False, True, True, False]
