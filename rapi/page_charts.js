// Drawings: the timeline of the last hour, and the graph of locks.

import { api } from "./page_api.js";
import { count, h, linked, moment, s, span, table } from "./page_parts.js";

const CAUSES = { running: "running", lock: "waits for a lock", rule: "held by a filter rule", limit: "waits for a rate limit",
  dependency: "waits for another job", slots: "waits for a run slot", order: "waits for its turn", other: "waits" };
const known = (cause) => (cause in CAUSES ? cause : "other");
const kept = { minutes: 60, by: "job" };
const ROW = 18;
const LEFT = 150;

export async function timeline(context) {
  const minutes = h("select", { "aria-label": "How far back" },
    [5, 15, 60].map((one) => h("option", { value: one, selected: one === kept.minutes }, `last ${one} min`)));
  const by = h("select", { "aria-label": "Rows" },
    ["job", "resource"].map((one) => h("option", { value: one, selected: one === kept.by }, `by ${one}`)));
  const body = h("div", {});
  const load = async () => {
    const found = await api("GET", `/2/timeline?seconds=${kept.minutes * 60}`);
    // A short history fills the whole width.
    const first = Math.min(...found.rows.flatMap((row) => row.spans.map((one) => one.begin)), found.now - 60);
    found.since = Math.max(found.since, first);
    if (!context.signal.aborted) body.replaceChildren(...(kept.by === "job" ? byJob(found) : byResource(found)));
  };
  const changed = () => { kept.minutes = Number(minutes.value); kept.by = by.value; load(); };
  minutes.addEventListener("change", changed);
  by.addEventListener("change", changed);
  const timer = setInterval(load, 5000);
  context.signal.addEventListener("abort", () => clearInterval(timer));
  context.whenChanged(load);
  await load();
  const legend = Object.entries(CAUSES).map(([cause, text]) => h("span", {}, h("i", { class: `cause-${cause}` }), text));
  return [h("h1", {}, "Timeline"), h("div", { class: "bar" }, minutes, by), h("div", { class: "legend" }, legend), body];
}

function byJob(found) {
  const rows = found.rows.slice(-200).reverse().map((row) => ({
    label: `${row.id} ${row.summary}`, href: `#/jobs/${row.id}`,
    bars: row.spans.map((one) => ({ ...one, title: `job ${row.id}` })),
  }));
  const rest = found.count - rows.length;
  return [chart(found, rows), rest > 0 && h("p", { class: "faint" }, `${count(rest, "older job")} not drawn.`)].filter(Boolean);
}

// One row for each lock, rule or job that somebody waited for: all waits for it, one over the other.
function byResource(found) {
  const waits = new Map();
  for (const row of found.rows) {
    for (const one of row.spans) {
      if (one.cause === "running" || !one.resource) continue;
      const name = `${one.cause} ${one.resource}`;
      if (!waits.has(name)) waits.set(name, []);
      waits.get(name).push({ ...one, title: `job ${row.id}` });
    }
  }
  const total = (bars) => bars.reduce((sum, one) => sum + (one.end ?? found.now) - one.begin, 0);
  const rows = [...waits].map(([name, bars]) => ({ label: `${name} (${span(total(bars))})`, bars, weight: total(bars) }));
  rows.sort((one, other) => other.weight - one.weight);
  return [rows.length ? chart(found, rows.slice(0, 100)) : h("p", {}, "Nobody waited for anything with a name.")];
}

function chart(found, rows) {
  const width = 1140;
  const height = rows.length * ROW + 30;
  const x = (when) => LEFT + (Math.max(when, found.since) - found.since) / (found.now - found.since) * (width - LEFT - 10);
  const drawing = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Timeline", width: "100%" });
  for (let step = 0; step <= 6; step += 1) {
    const when = found.since + (found.now - found.since) * step / 6;
    drawing.append(s("line", { class: "grid", x1: x(when), x2: x(when), y1: 18, y2: height }));
    const text = new Date(when * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    drawing.append(s("text", { class: "faint", x: x(when), y: 12, "text-anchor": step === 6 ? "end" : "middle" }, text));
  }
  rows.forEach((row, place) => {
    const y = 22 + place * ROW;
    const label = s("text", { x: 4, y: y + 12 }, row.label.length > 22 ? `${row.label.slice(0, 21)}\u2026` : row.label);
    label.append(s("title", {}, row.label));
    drawing.append(row.href ? s("a", { href: row.href }, label) : label);
    for (const one of row.bars) {
      const end = one.end ?? found.now;
      if (end < found.since) continue;
      const bar = s("rect", { class: `cause-${known(one.cause)}`, x: x(one.begin), y: y + 2, height: ROW - 5,
        width: Math.max(1.5, x(end) - x(one.begin)), opacity: row.href ? 1 : 0.5 });
      const words = CAUSES[known(one.cause)];
      bar.append(s("title", {}, `${one.title}: ${words} ${one.resource}, ${span(end - one.begin)} from ${moment(one.begin)}`));
      drawing.append(bar);
    }
  });
  return h("div", { class: "panel scroll" }, drawing);
}

// ---------------------------------------------------------------- locks

export async function locks(context) {
  const body = h("div", {});
  const load = async () => {
    const found = await api("GET", "/2/locks");
    if (context.signal.aborted) return;
    body.replaceChildren(...(found.locks.length ? [graph(found), list(found)] : [h("p", {}, "No lock is held or wanted.")]));
  };
  const timer = setInterval(load, 3000);
  context.signal.addEventListener("abort", () => clearInterval(timer));
  context.whenChanged(load);
  await load();
  return [h("h1", {}, "Locks"), body];
}

const named = (owner) => (/^\d+$/.test(owner) ? `job ${owner}` : owner);

function list(found) {
  const words = (owners) => owners.map(named).flatMap((owner, place) => [place ? ", " : "", ...linked(owner)]);
  const some = (owners) => [...words(owners.slice(0, SHOWN_JOBS)), owners.length > SHOWN_JOBS ? ` and ${owners.length - SHOWN_JOBS} more` : ""];
  const byMode = (found) => h("td", { class: "text" }, found.flatMap(([mode, owners]) => [`${mode}: `, ...some(owners), " "]));
  const rows = found.locks.map((row) => h("tr", {},
    h("td", {}, row.name), h("td", {}, row.mode ?? ""), h("td", { class: "text" }, words(row.owners)),
    byMode(row.pending), byMode(row.wanted)));
  return table(["Lock", "Mode", "Held by", "Waited for by", "Wanted by"], rows, "Locks");
}

const SHOWN_JOBS = 20;
const GRAPH_LOCKS = 40;

// Owners that wait on the left, locks in the middle, owners that hold on the right.
function graph(found) {
  const contended = found.locks.filter((row) => row.pending.length > 0);
  const shown = (contended.length ? contended : found.locks).slice(0, GRAPH_LOCKS);
  const column = (names) => new Map([...new Set(names)].map((name, place) => [name, 30 + place * 34]));
  const middle = column(shown.map((row) => row.name));
  const left = column(shown.flatMap((row) => row.pending.flatMap(([, owners]) => owners)));
  const right = column(shown.flatMap((row) => row.owners));
  const height = 24 + 34 * Math.max(1, middle.size, left.size, right.size);
  const drawing = s("svg", { viewBox: `0 0 900 ${height}`, role: "img", "aria-label": "Graph of locks", width: "100%" });
  drawing.append(...[["waits", 90], ["lock", 450], ["holds", 810]].map(([text, x]) =>
    s("text", { class: "faint", x, y: 12, "text-anchor": "middle" }, text)));
  const edge = (x1, y1, x2, y2, kind) => drawing.append(s("path", { class: kind, d: `M${x1} ${y1} C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}` }));
  for (const row of shown) {
    const y = middle.get(row.name);
    for (const [, owners] of row.pending) for (const owner of owners) edge(170, left.get(owner), 330, y, "edge");
    for (const owner of row.owners) edge(570, y, 730, right.get(owner), "edge held");
  }
  const box = (text, x, y, width, href) => {
    const group = s("g", {},
      s("rect", { class: "box", x: x - width / 2, y: y - 12, width, height: 24, rx: 4 }),
      s("text", { x, y: y + 4, "text-anchor": "middle" }, text.length > width / 7 ? `${text.slice(0, width / 7 - 1)}\u2026` : text),
      s("title", {}, text));
    drawing.append(href ? s("a", { href }, group) : group);
  };
  const job = (owner) => (/^\d+$/.test(owner.split("/").pop()) ? `#/jobs/${owner.split("/").pop()}` : null);
  for (const [name, y] of middle) box(name, 450, y, 240);
  for (const [name, y] of left) box(named(name), 90, y, 160, job(name));
  for (const [name, y] of right) box(named(name), 810, y, 160, job(name));
  const rest = (contended.length || found.locks.length) - shown.length;
  return h("div", { class: "panel scroll" }, drawing, rest > 0 && h("p", { class: "faint" }, `${count(rest, "more lock")} in the table.`));
}
