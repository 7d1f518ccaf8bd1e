"""The page in a real browser: rules, locks and timeline."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest
from tests.rapi.page import browsing
from tests.rapi.page.browsing import delay, ended, go, log_in, shell, visit
from tests.rapi.served import Served

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browsing.CHROMIUM is None, reason="Chromium is not installed"),
]


def test_a_rule_is_written_by_locks(page: Page, served: Served) -> None:
    log_in(page)
    go(page, "Rules")
    page.get_by_label("Locks").fill("node/n7 node/n8:exclusive")
    page.get_by_label("But not").fill("repair")
    page.get_by_label("Reason", exact=True).fill("disks")
    page.get_by_role("button", name="Add the rule").click()
    words = "job that touches node/n7 or node/n8 (exclusive), and no reason repair"
    page.get_by_role("cell", name=words).wait_for()
    [rule] = served.get("/2/rules")
    # A second click would add it once more.
    assert page.get_by_label("Locks").input_value() == ""
    page.set_viewport_size({"width": 390, "height": 844})
    box = page.get_by_role("button", name="Delete rule").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390
    page.set_viewport_size(browsing.SCREEN)
    exclusive = ["&", ["==", "touches", "node/n8"], ["==", "mode", "exclusive"]]
    assert rule["predicates"] == [
        ["lock", ["|", ["==", "touches", "node/n7"], exclusive]],
        ["!", ["reason", ["==", "reason", "repair"]]],
    ]
    served.done("DELETE", f"/2/filters/{rule['uuid']}")
    # One for all jobs is asked for.
    page.get_by_role("button", name="Add the rule").click()
    page.get_by_text("This rule is for every job.").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Leave it").click()
    assert served.get("/2/rules") == []


def test_what_a_rule_would_do_is_said_in_words(page: Page, served: Served) -> None:
    holder = served.done("POST", "/2/jobs", {"ops": [delay(600.0, "node26")]})
    waiting = served.done("POST", "/2/jobs", {"ops": [delay(0.1, "node26")]})
    log_in(page)
    go(page, "Rules")
    page.get_by_label("Opcodes").first.fill("OP_TAGS_SET")
    page.get_by_role("button", name="What would it do?").click()
    page.get_by_text("would wait: 1 for a lock").wait_for()
    page.get_by_label("Opcodes").first.fill("OP_TEST_DELAY")
    page.get_by_role("button", name="What would it do?").click()
    page.get_by_text("would wait: 1 because of a filter rule").wait_for()
    page.get_by_text(f"job {waiting} paused by the new rule").wait_for()
    page.get_by_text(f"Held before the next opcode: job {holder}.").wait_for()
    for job_id in (waiting, holder):
        served.request("DELETE", f"/2/jobs/{job_id}?kill=1")


LOCKS = """async (locks) => {
    window.fetch = async () => new Response(JSON.stringify({ locks, waits: [] }));
    const { locks: view } = await import("/page_locks.js");
    const context = { signal: new AbortController().signal, whenChanged() {}, every() {} };
    const found = document.createElement("div");
    found.append(...await view(context));
    document.body.append(found);
    const texts = [...found.querySelectorAll("svg g text")].map((one) => one.textContent);
    return [texts, found.querySelectorAll("svg path").length, found.innerText];
}"""


def test_many_owners_of_one_lock_are_one_box_and_whole_levels_have_a_star(page: Page) -> None:
    owners = [str(number) for number in range(1, 21)]
    rows = [
        {
            "name": "cluster/BGL",
            "mode": "shared",
            "owners": owners,
            "pending": [["exclusive", ["40"]]],
        },
        {
            "name": "node/[lockset]",
            "mode": "exclusive",
            "owners": ["1"],
            "pending": [["shared", owners[1:]]],
        },
        {"name": "job/1", "mode": None, "owners": [], "pending": [["success", owners[2:]]]},
    ]
    texts, lines, words = page.evaluate(LOCKS, rows)
    assert texts.count("and 17 more") == 1
    assert texts.count("and 16 more") == 1
    assert "node/*" in texts
    assert lines == 1 + 4 + 4 + 1
    assert "lockset" not in words
    assert "Waiting for other jobs" in words


def test_on_a_phone_who_holds_and_wants_a_lock_stands_below_its_name(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    rows = [
        {
            "name": f"node/{'n' * 20}",
            "mode": "exclusive",
            "owners": ["1"],
            "pending": [["shared", ["2"]]],
            "wanted": [["exclusive", ["3"]]],
        }
    ]
    *_, words = page.evaluate(LOCKS, rows)
    assert "job 3 (exclusive)" in words
    edges = "all => all.map((one) => one.getBoundingClientRect().right)"
    assert max(page.get_by_role("table").locator("td").evaluate_all(edges)) <= 390


def test_the_table_of_locks_has_no_empty_column_and_a_phone_no_cut_drawing(page: Page) -> None:
    row = {"name": "node/n1", "mode": "exclusive", "owners": ["1"], "pending": []}
    page.evaluate(LOCKS, [row, {**row, "wanted": [["shared", ["3"]]]}])
    heads = page.get_by_role("columnheader")
    assert heads.all_inner_texts() == ["Lock", "Mode", "Held by", "Wanted by"]
    drawing = page.locator("svg.graph").first
    assert drawing.is_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    assert not drawing.is_visible()


@pytest.mark.parametrize(
    ("since", "until", "first", "step"),
    [
        (1_000_000_001.3, 1_000_000_009.0, "01:46:42", 1),
        (1_000_000_001.0, 1_000_000_600.0, "01:47", 60),
        (1_000_000_001.0, 1_000_003_600.0, "01:50", 600),
    ],
)
def test_the_axis_of_the_timeline_has_round_times_that_differ(
    page: Page, since: float, until: float, first: str, step: int
) -> None:
    script = """async ([since, until]) => {
        const { ticks } = await import("/page_timeline.js");
        return ticks(since, until, 900);
    }"""
    found = page.evaluate(script, [since, until])
    texts = [text for _, text in found]
    assert texts[0] == first
    assert len({*texts}) == len(texts) > 3
    steps = {round(later[0] - one[0]) for one, later in itertools.pairwise(found)}
    assert steps == {step}


DRAW_TIMELINE = """() => { window.drawTimeline = async (rows, now) => {
    const found = { now, since: 0, count: rows.length, rows };
    window.fetch = async () => new Response(JSON.stringify(found));
    const { timeline } = await import("/page_timeline.js");
    const nothing = () => {};
    const context = { signal: new AbortController().signal, query: () => new URLSearchParams(),
        every: nothing, whenChanged: nothing, whenChosen: nothing };
    document.getElementById("main").append(...await timeline(context));
}; }"""
"""Defines `drawTimeline`, which draws these rows up to a moment."""


@pytest.mark.parametrize("letter", ["W", "i", "\u4e2d"])
def test_labels_of_the_timeline_end_where_bars_begin(page: Page, letter: str) -> None:
    script = """async (name) => {
        const spans = [{ begin: 100, end: 1000, cause: "running", resource: "" }];
        const rows = [{ id: 1, name, outcome: "", spans }];
        await drawTimeline(rows, 1000);
        const edges = (what) => document.querySelector(`svg ${what}`).getBoundingClientRect();
        return [edges("text.label").right, edges("rect").left];
    }"""
    page.evaluate(DRAW_TIMELINE)
    end, begin = page.evaluate(script, letter * 200)
    assert begin - 20 < end <= begin


def test_numbered_names_in_a_narrow_timeline_differ_and_so_do_its_times(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    names = [f"restore-of-all-of-node{number:02}" for number in range(20)]
    script = """async (names) => {
        const spans = [{ begin: 1001, end: 1048, cause: "running", resource: "" }];
        const rows = names.map((name, id) => ({ id: 1, name, outcome: "", spans }));
        await drawTimeline(rows, 1048);
        const texts = (what) => [...document.querySelectorAll(what)].map((one) => one.textContent);
        return [texts("text.label"), document.querySelectorAll("svg line.grid").length];
    }"""
    page.evaluate(DRAW_TIMELINE)
    labels, times = page.evaluate(script, names)
    assert len({label.partition("of-node99")[0] for label in labels}) == len(names)
    assert times >= 2


def test_the_timeline_says_for_what_jobs_waited_as_its_address_wants(
    page: Page, served: Served
) -> None:
    first = served.done("POST", "/2/jobs", {"ops": [delay(600.0)]})
    served.done("POST", "/2/jobs", {"ops": [delay(0.1)], "depends": [first]})
    log_in(page)
    visit(page, served, "timeline?by=resource")
    page.locator("svg text", has_text=f"job {first} (").wait_for()
    rows = page.get_by_label("Rows")
    assert rows.input_value() == "resource"
    rows.select_option("a row for each job")
    page.locator(f"svg a[href='#/jobs/{first}']").wait_for()
    page.go_back()
    page.locator("svg text", has_text=f"job {first} (").wait_for()
    assert rows.input_value() == "resource"
    served.request("DELETE", f"/2/jobs/{first}?kill=1")


def test_the_timeline_names_what_went_wrong_beside_the_bar(page: Page, served: Served) -> None:
    failed = ended(served, shell("exit 3"))
    log_in(page)
    go(page, "Timeline")
    page.locator("svg text.ending", has_text="failed").first.wait_for()
    assert page.locator(f"svg a[href='#/jobs/{failed}']").count() == 1


def test_health_counts_jobs_by_outcome_and_tells_limits_and_disk(
    page: Page, served: Served
) -> None:
    ended(served, shell("exit 3"))
    log_in(page)
    go(page, "Health")
    page.locator("dd", has_text=re.compile(r"\d+ failed")).wait_for()
    assert "error" not in page.locator("dl").inner_text()
    page.locator("dd", has_text="of each job, no limit in all").wait_for()
    used = re.compile(r"iB of .*iB free; jobs .*, output .*, archive ")
    page.locator("dd", has_text=used).wait_for()
    script = """async (sizes) => {
        const { bytes } = await import("/page_parts.js");
        return sizes.map(bytes);
    }"""
    sizes = [0, 1023, 1024, 10_240, 48_234_496, 1_610_612_736, 2**50]
    words = ["0 B", "1023 B", "1.0 KiB", "10 KiB", "46 MiB", "1.5 GiB", "1024 TiB"]
    assert page.evaluate(script, sizes) == words
