// Locks: who holds them, who waits for them. A drawing of the contended ones, and a table of all.

import { api } from "./page_api.js";
import { count, h, linked, s, swap, table } from "./page_parts.js";

const SHOWN = 3;
const GRAPH_LOCKS = 40;
/** Most locks in the picture if nobody waits; the table has all. */
const GRAPH_LOCKS_HELD = 12;

export async function locks(context) {
  const body = h("div", {});
  const load = async () => {
    const found = await api("GET", "/2/locks");
    if (context.signal.aborted) return;
    names = found.names ?? {};
    const rows = found.locks.map((row) => ({ ...row, name: called(row.name), 
      waiters: each(row.pending), wanted: each(row.wanted ?? []) }));
    // Who holds one lock of a level has announced that for the whole level, which then has a row, too.
    const held = rows.filter((row) => !row.name.startsWith("job/") && row.owners.length + row.waiters.length + row.wanted.length);
    const awaited = rows.filter((row) => row.name.startsWith("job/"));
    swap(body,
      held.length ? [graph(held), list(held)] : h("p", {}, "No lock is held or wanted."),
      awaited.length > 0 && [h("h2", {}, "Waiting for other jobs"), dependencies(awaited)].flat());
  };
  context.every(3, load);
  context.whenChanged(load);
  await load();
  return [h("h1", {}, "Locks"), body];
}

/** Each owner with its mode. */
const each = (byMode) => byMode.flatMap(([mode, owners]) => owners.map((owner) => ({ owner, mode })));
/** The name as people write it: the lock of a whole level has a star. */
const called = (name) => name.replace(/\/\[lockset\]$/, "/*");
const jobOf = (owner) => /(?:^|\/)(\d+)$/.exec(owner)?.[1];
/** The names of jobs, by id. */
let names = {};
const named = (owner) => (jobOf(owner) ? `job ${jobOf(owner)}` : owner);
const withName = (owner) => `${named(owner)} ${names[jobOf(owner)] ?? ""}`.trim();

/** The first of these owners, and the others on request. */
function owners(all, key) {
  const words = (some) => some.flatMap(({ owner, mode }, place) => [place ? ", " : "", ...linked(named(owner)), names[jobOf(owner)] && ` ${names[jobOf(owner)]}`, mode && ` (${mode})`]);
  const rest = all.slice(SHOWN);
  return [words(all.slice(0, SHOWN)), rest.length > 0 && " ", rest.length > 0 && h("details", { "data-key": key }, h("summary", {}, `and ${rest.length} more`), words(rest))];
}

function list(rows) {
  const heads = [["Held by", "held", (row) => row.owners.map((owner) => ({ owner }))],
    ["Waited for by", "awaited", (row) => row.waiters], ["Wanted by", "wanted", (row) => row.wanted]];
  // Often nobody waits with a process: a column without an entry is left out.
  const used = heads.filter(([, , of]) => rows.some((row) => of(row).length));
  const hasModes = rows.some((row) => row.mode);
  const lines = rows.map((row) => h("tr", {},
    h("td", { class: "name" }, row.name), hasModes && h("td", { "data-head": "Mode" }, row.mode ?? []),
    used.map(([head, key, of]) => h("td", { class: "text", "data-head": head }, owners(of(row), `${key} ${row.name}`)))));
  return table(["Lock", ...(hasModes ? ["Mode"] : []), ...used.map(([head]) => head)], lines, "Locks", "stacked");
}

function dependencies(rows) {
  const lines = rows.map((row) => h("tr", {}, h("td", {}, linked(`job ${row.name.slice(4)}`)),
    h("td", { class: "text" }, owners(row.waiters.map(({ owner }) => ({ owner })), row.name))));
  return table(["Job", "Waited for by"], lines, "Jobs that others wait for");
}

// ---------------------------------------------------------------- the drawing

/** The owners of one lock that are drawn: the first, and one box for all others. */
function drawn(all, lock, side) {
  const some = all.length > SHOWN + 1 ? all.slice(0, SHOWN) : all;
  const boxes = some.map((owner) => ({ key: owner, text: withName(owner), href: jobOf(owner) && `#/jobs/${jobOf(owner)}` }));
  const rest = all.length - some.length;
  return rest ? [...boxes, { key: `${side} ${lock}`, text: `and ${rest} more` }] : boxes;
}

// Owners that wait on the left, locks in the middle, owners that hold on the right.
function graph(rows) {
  const contended = rows.filter((row) => {
    const others = [...row.waiters, ...row.wanted];
    return others.length > 0 && (row.mode === "exclusive" || others.some(({ mode }) => mode === "exclusive"));
  });
  const wanted = contended.length ? contended : rows.slice(0, GRAPH_LOCKS_HELD);
  const shown = wanted.slice(0, GRAPH_LOCKS).map((row) => ({
    name: row.name,
    waiters: drawn([...new Set([...row.waiters, ...row.wanted].map(({ owner }) => owner))], row.name, "waits"),
    holders: drawn(row.owners, row.name, "holds"),
  }));
  const places = (boxes) => new Map([...new Map(boxes.map((box) => [box.key, box])).values()].map((box, place) => [box.key, { ...box, y: 34 + place * 34 }]));
  const middle = places(shown.map((row) => ({ key: row.name, text: row.name })));
  const left = places(shown.flatMap((row) => row.waiters));
  const right = places(shown.flatMap((row) => row.holders));
  const height = 24 + 34 * Math.max(middle.size, left.size, right.size);
  const drawing = s("svg", { viewBox: `0 0 900 ${height}`, role: "img", "aria-label": "Graph of locks", class: "graph" });
  drawing.append(...[["waits for, or wants", 115], ["lock", 450], ["held by", 785]].map(([text, x]) =>
    s("text", { class: "faint", x, y: 12, "text-anchor": "middle" }, text)));
  const edge = (x1, y1, x2, y2, kind) => drawing.append(s("path", { class: kind, d: `M${x1} ${y1} C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}` }));
  for (const row of shown) {
    const { y } = middle.get(row.name);
    for (const { key } of row.waiters) edge(225, left.get(key).y, 330, y, "edge");
    for (const { key } of row.holders) edge(570, y, 675, right.get(key).y, "edge held");
  }
  const box = ({ text, y, href }, x, width) => {
    const group = s("g", {},
      s("rect", { class: "box", x: x - width / 2, y: y - 12, width, height: 24, rx: 4 }),
      s("text", { x, y: y + 4, "text-anchor": "middle" }, text.length > width / 7 ? `${text.slice(0, width / 7 - 1)}\u2026` : text),
      s("title", {}, text));
    drawing.append(href ? s("a", { href }, group) : group);
  };
  for (const one of middle.values()) box(one, 450, 240);
  for (const one of left.values()) box(one, 115, 220);
  for (const one of right.values()) box(one, 785, 220);
  const rest = wanted.length - shown.length;
  // On a narrow screen it would be cut: the table there says the same.
  return h("div", { class: "panel scroll wide" }, drawing, rest > 0 && h("p", { class: "faint" }, `${count(rest, "more lock")} in the table.`));
}
