// Where the time of the last hour went: a row for each job, or for what jobs waited for.

import { api } from "./page_api.js";
import { ZONE, count, h, moment, s, span, swap } from "./page_parts.js";
import { address } from "./page_state.js";

export const CAUSES = { running: "running", lock: "waits for a lock", rule: "held by a filter rule", limit: "waits for a rate limit",
  dependency: "waits for another job", slots: "waits for a run slot", order: "waits for its turn", other: "waits" };
const known = (cause) => (cause in CAUSES ? cause : "other");
const BY = { job: "a row for each job", resource: "for what jobs waited" };
const PAGES = { minutes: [5, 15, 60], by: ["job", "resource"] };
/** Outcomes that stand beside the bars of their jobs. */
const BAD = ["failed", "timed-out", "killed", "lost"];
const ROW = 20;
const TOP = 26;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];
/** Most pixels of a label. */
const LABEL = 224;

export async function timeline(context) {
  const chosen = (name) => PAGES[name].find((one) => String(one) === context.query().get(name)) ?? PAGES[name].at(name === "by" ? 0 : -1);
  const choices = (name, words) => h("select", { "aria-label": name === "by" ? "Rows" : "How far back",
    change: (event) => { location.hash = address({ [name]: event.target.value }); } },
  PAGES[name].map((one) => h("option", { value: one, selected: one === chosen(name) }, words(one))));
  const selects = Object.fromEntries([["minutes", (one) => `last ${one} min`], ["by", (one) => BY[one]]].map(([name, words]) => [name, choices(name, words)]));
  const body = h("div", {});
  const load = async () => {
    // Another address may have been chosen elsewhere, such as by the way back.
    for (const [name, select] of Object.entries(selects)) select.value = String(chosen(name));
    const found = await api("GET", `/2/timeline?seconds=${chosen("minutes") * 60}`);
    // A short history fills the whole width.
    const first = Math.min(...found.rows.flatMap((row) => row.spans.map((one) => one.begin)), found.now - 5);
    found.since = Math.max(found.since, first);
    // What ended long before now does not leave most of the width empty.
    const last = Math.max(...found.rows.flatMap((row) => row.spans.map((one) => one.end ?? found.now)), found.since + 5);
    found.until = Math.min(found.now, last);
    if (!context.signal.aborted) swap(body, chosen("by") === "job" ? byJob(found) : byResource(found));
  };
  context.every(5, load);
  context.whenChanged(load);
  context.whenChosen(load);
  await load();
  const legend = Object.entries(CAUSES).map(([cause, text]) => h("span", {}, h("i", { class: `cause-${cause}` }), text));
  return [h("div", { class: "bar" }, h("h1", {}, "Timeline"), Object.values(selects)),
    h("div", { class: "legend" }, legend), body];
}

function byJob(found) {
  const rows = found.rows.slice(-200).reverse().map((row) => ({
    label: `${row.id} ${row.name || row.summary}`, href: `#/jobs/${row.id}`,
    bars: row.spans.map((one) => ({ ...one, title: `job ${row.id}` })),
    ending: BAD.includes(row.outcome) && row.outcome,
  }));
  if (!rows.length) return [h("p", {}, "Nothing was seen of jobs within this time. What was before the last start of the daemon is not known.")];
  const rest = found.count - rows.length;
  return [chart(found, rows), rest > 0 && h("p", { class: "faint" }, `${count(rest, "older job")} not drawn.`)];
}

// One row for each lock, rule or job that somebody waited for: all waits for it, one over the other.
function byResource(found) {
  const waits = new Map();
  for (const row of found.rows) {
    for (const one of row.spans) {
      if (one.cause === "running" || !one.resource) continue;
      const jobs = one.resource.includes(",") ? "jobs" : "job";
      const name = `${one.cause === "dependency" ? jobs : one.cause} ${one.resource}`;
      if (!waits.has(name)) waits.set(name, []);
      waits.get(name).push({ ...one, title: `job ${row.id}` });
    }
  }
  const total = (bars) => bars.reduce((sum, one) => sum + (one.end ?? found.now) - one.begin, 0);
  const rows = [...waits].map(([name, bars]) => ({ label: `${name} (${span(total(bars))})`, bars, weight: total(bars) }));
  rows.sort((one, other) => other.weight - one.weight);
  return [rows.length ? chart(found, rows.slice(0, 100)) : h("p", {}, "Nobody waited for anything with a name.")];
}

/** Round moments between two, at most one for each `room` pixels, and an end beside a single one: [seconds, text]. */
export function ticks(since, until, width, room = 80) {
  const most = Math.max(1, Math.floor(width / room));
  const step = STEPS.find((one) => (until - since) / one <= most) ?? STEPS.at(-1);
  const offset = new Date(since * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let when = Math.ceil((since - offset) / step) * step + offset; when <= until; when += step) {
    const text = new Date(when * 1000).toLocaleTimeString("en-GB");
    found.push([when, step < 60 ? text : text.slice(0, 5)]);
  }
  if (found.length < 2) {
    // Alone it would say nothing of how long the rest is.
    const other = found.length && found[0][0] - since < until - found[0][0] ? until : since;
    found.push([other, new Date(other * 1000).toLocaleTimeString("en-GB")]);
  }
  return found;
}

/** The width of a text as the drawing shows it. */
function measure() {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return (text) => pen.measureText(text).width;
}

/** As much of the beginning and of the end of a text as fits: names that are numbered differ at their ends. */
function shortened(text, room, widthOf) {
  if (widthOf(text) <= room) return text;
  const kept = (size) => `${text.slice(0, size - Math.floor(size / 3))}\u2026${text.slice(text.length - Math.floor(size / 3))}`;
  let size = Math.min(text.length, Math.ceil(room / 3));
  while (size > 1 && widthOf(kept(size)) > room) size -= 1;
  return kept(size);
}

function chart(found, rows) {
  const widthOf = measure();
  const width = Math.max(320, Math.min(2400, document.getElementById("main").clientWidth - 62));
  const room = Math.min(LABEL, width / 3);
  const labels = rows.map((row) => shortened(row.label, room, widthOf));
  const left = Math.max(...labels.map(widthOf)) + 14;
  const height = rows.length * ROW + TOP + 4;
  const x = (when) => left + (Math.min(Math.max(when, found.since), found.until) - found.since) / (found.until - found.since) * (width - left - 10);
  const drawing = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Timeline" });
  for (const [when, text] of ticks(found.since, found.until, width - left)) {
    drawing.append(s("line", { class: "grid", x1: x(when), x2: x(when), y1: TOP - 8, y2: height }));
    const anchor = width - x(when) < 30 ? "end" : x(when) - left < 30 ? "start" : "middle";
    drawing.append(s("text", { class: "faint", x: x(when), y: 12, "text-anchor": anchor }, text));
  }
  drawing.append(s("text", { class: "faint", x: 4, y: 12 }, ZONE));
  rows.forEach((row, place) => {
    const y = TOP + place * ROW;
    const label = s("text", { class: "label", x: 4, y: y + 13 }, labels[place]);
    label.append(s("title", {}, row.label));
    drawing.append(row.href ? s("a", { href: row.href }, label) : label);
    for (const one of row.bars) {
      const end = one.end ?? found.now;
      if (end < found.since) continue;
      const bar = s("rect", { class: `cause-${known(one.cause)}`, x: x(one.begin), y: y + 3, height: ROW - 6,
        width: Math.max(1.5, x(end) - x(one.begin)), opacity: row.href ? 1 : 0.5 });
      const words = CAUSES[known(one.cause)];
      bar.append(s("title", {}, `${one.title}: ${words} ${one.resource}, ${span(end - one.begin)} from ${moment(one.begin)}`));
      drawing.append(bar);
    }
    if (row.ending) {
      const end = x(row.bars.at(-1)?.end ?? found.now);
      const isLate = width - end < 70;
      drawing.append(s("text", { class: "ending", x: isLate ? end - 4 : end + 4, y: y + 14, "text-anchor": isLate ? "end" : "start" }, row.ending));
    }
  });
  return h("div", { class: "panel scroll" }, drawing);
}
