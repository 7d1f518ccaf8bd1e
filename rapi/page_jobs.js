// The list of jobs: what is searched and chosen stands in the address. Tick boxes act on many.

import { api } from "./page_api.js";
import { FINAL, ZONE, ask, count, elapsed, h, linked, notice, state, swap, table, when } from "./page_parts.js";
import { address, note } from "./page_state.js";
import { CAUSES } from "./page_timeline.js";

const SHOWN = 100;
const PAGE_MAX = 1000;
const AT_ONCE = 6;
const WAITING = ["queued", "waiting"];

export async function jobs(context) {
  const search = h("input", { type: "search", placeholder: matchMedia("(max-width: 640px)").matches ? "Search" : "Search: id, name, command, user, reason", "aria-label": "Search" });
  const body = h("div", {});
  const bar = h("div", { class: "chosen panel", role: "group", "aria-label": "Chosen jobs" });
  const chosen = new Map();
  let [asked, answered, isOpen] = [0, 0, false];
  const load = async () => {
    const mine = asked += 1;
    const query = context.query();
    const page = Math.max(1, Number.parseInt(query.get("page"), 10) || 1);
    const found = await listed(query, SHOWN, (page - 1) * SHOWN);
    // An answer may come after that to a later question.
    if (context.signal.aborted || mine < answered) return;
    answered = mine;
    isOpen = found.indexed != null || (!query.get("archived") && found.jobs.some((job) => !FINAL.includes(job.status)));
    for (const job of found.jobs) if (chosen.has(job.id)) chosen.set(job.id, job);
    if (document.activeElement !== search) search.value = query.get("search") ?? "";
    const isAll = !["search", "status", "outcome"].some((name) => query.get(name));
    const choose = () => {
      for (const box of body.querySelectorAll("tbody .tick input")) box.checked = chosen.has(Number(box.dataset.job));
      swap(bar, actions(context, chosen, () => { choose(); load(); }), others());
    };
    // Who may change some jobs only learns which ones when they come.
    const matches = `${found.may ? "" : found.count.toLocaleString("en")}${isAll ? "" : " that match"}${found.may ? " that you may change" : ""}`.trim();
    const others = () => chosen.size > 0 && !query.get("archived") && found.count > found.jobs.length
      && short(`Choose all ${matches}`, found.may ? "All" : `All ${found.count.toLocaleString("en")}`,
        { click: async () => { for (const job of await matching(context, query)) chosen.set(job.id, job); await load(); } });
    swap(body, states(found, query),
      found.jobs.length ? list(context, found, query, chosen, choose) : h("p", {}, isAll && page === 1 ? "There are no jobs." : "No job matches."),
      pages(found, page), archive(query.get("archived"), found.indexed));
    choose();
  };
  search.addEventListener("input", () => { note({ search: search.value, page: "" }); load(); });
  // The archive is read on request only.
  context.whenChanged(load, () => !context.query().get("archived"));
  // For what jobs wait changes without an event.
  context.every(3, async () => { if (isOpen) await load(); });
  context.whenChosen(load);
  await load();
  return [
    h("div", { class: "bar" }, h("h1", {}, "Jobs"), search,
      context.may("submit") && h("a", { class: "button strong", href: "#/submit", "aria-label": "Submit a job" }, h("span", { class: "wide" }, "Submit a job"), h("span", { class: "narrow" }, "Submit"))),
    body, bar,
  ];
}

const listed = (query, limit, offset) => {
  const wanted = new URLSearchParams({ limit, offset });
  for (const name of ["search", "sort", "status", "outcome", "archived"]) for (const one of query.getAll(name)) wanted.append(name, one);
  return api("GET", `/2/queue?${wanted}`);
};

/** All jobs that match, on whatever page, with which the user may do something. */
async function matching(context, query) {
  const all = new Map();
  for (let offset = 0, count = 1; offset < count; offset += PAGE_MAX) {
    const found = await listed(query, PAGE_MAX, offset);
    count = found.count;
    for (const job of found.jobs) if (mayChange(context, found, job)) all.set(job.id, job);
  }
  return all.values();
}

/** How many jobs with the words of the search there are of each kind; each is a link to these. */
function states(found, query) {
  const all = Object.values(found.counts).reduce((sum, one) => sum + one, 0);
  const chip = (word, number, changes) => {
    const [[field, value]] = Object.entries(changes);
    const isChosen = value ? query.get(field) === value : !query.get("status") && !query.get("outcome");
    if (!number && !isChosen && value) return null;
    return h("a", { class: `chip ${word}`, href: address({ status: "", outcome: "", page: "", ...changes }), "aria-current": isChosen && "true" },
      word, " ", h("b", {}, number.toLocaleString("en")));
  };
  const live = Object.entries(found.counts).filter(([word]) => !FINAL.includes(word)).reverse();
  return h("nav", { class: "chips", "aria-label": "States" }, chip("all", all, { status: "" }),
    live.map(([word, number]) => chip(word, number, { status: word })),
    Object.entries(found.outcomes).map(([word, number]) => chip(word, number, { outcome: word })));
}

function archive(isShown, indexed) {
  return h("p", { class: "faint" }, isShown
    ? [indexed == null ? "Archived jobs are among these. "
      : h("strong", { role: "status" }, `Archived jobs are left out that are not found yet: the index of the archive is being built, ${Math.floor(100 * indexed)} % so far. `),
    h("a", { href: address({ archived: "", page: "" }) }, "Without the archive")]
    : h("a", { href: address({ archived: "1", page: "" }) }, "Look into the archive, too"));
}

function pages(found, page) {
  if (found.count <= SHOWN && page === 1) return null;
  const first = (page - 1) * SHOWN + 1;
  const words = `${first.toLocaleString("en")} to ${Math.min(found.count, page * SHOWN).toLocaleString("en")} of ${count(found.count, "job")}`;
  return h("nav", { class: "bar", "aria-label": "Pages" },
    page > 1 && h("a", { href: address({ page: page > 2 ? page - 1 : "" }) }, "Previous"), words,
    page * SHOWN < found.count && h("a", { href: address({ page: page + 1 }) }, "Next"));
}

// ---------------------------------------------------------------- the table

/** Columns that are shown within another one. */
const WITHIN = ["outcome", "reason_ended", "cause", "reason", "name", "plan"];
const HEADS = { id: { title: "Id", kind: "number" }, status: { title: "Status", kind: "" }, summary: { title: "What", kind: "" } };

function list(context, found, query, chosen, choose) {
  const columns = found.columns.filter(({ name }) => !WITHIN.includes(name));
  const sort = query.get("sort") ?? "";
  const boxes = found.jobs.map((job) => mayChange(context, found, job) && h("input", { type: "checkbox", "aria-label": `Choose job ${job.id}`, "data-job": job.id,
    checked: chosen.has(job.id), change: (event) => { put(job, event.target.checked); choose(); } }));
  const offered = found.jobs.filter((_, place) => boxes[place]);
  const put = (job, isChosen) => { if (isChosen) chosen.set(job.id, job); else chosen.delete(job.id); };
  const all = h("input", { type: "checkbox", "aria-label": "Choose all jobs of this page",
    checked: offered.every((job) => chosen.has(job.id)),
    change: (event) => {
      for (const job of offered) put(job, event.target.checked);
      choose();
    } });
  const rows = found.jobs.map((job, place) => h("tr", {},
    offered.length > 0 && h("td", { class: "tick" }, boxes[place] && h("label", {}, boxes[place])),
    columns.map((column) => cell(job, column, found.waits[job.id])),
    h("td", { class: "wide number" }, elapsed(job))));
  const heads = columns.map(({ name, title, kind }) => ({
    kind: kind === "number" ? "number wide" : "wide", title: kind === "time" ? `${title} (${ZONE})` : title,
    ...HEADS[name], name, isNumber: kind !== "text" }));
  heads.push({ title: "Elapsed", kind: "wide number", name: "elapsed", isNumber: true });
  return table([...(offered.length ? [{ title: h("label", {}, all), kind: "tick" }] : []), ...heads.map((one) => sortable(one, sort))], rows, "Jobs");
}

/** A heading that sorts: first one way, then the other, then as usual. */
function sortable(head, sort) {
  const usual = head.name === "status" ? ["", "status", "-status"] : head.isNumber ? [`-${head.name}`, head.name, ""] : [head.name, `-${head.name}`, ""];
  const next = usual[(usual.indexOf(sort) + 1) % usual.length];
  const isHere = sort.replace("-", "") === head.name;
  const order = isHere && (sort.startsWith("-") ? "descending" : "ascending");
  return { ...head, sort: order,
    title: h("a", { href: address({ sort: next, page: "" }) }, head.title, isHere && (order === "descending" ? " \u2193" : " \u2191")) };
}

const CELLS = {
  id: (job) => h("td", { class: "number" }, h("a", { href: `#/jobs/${job.id}` }, String(job.id))),
  status: (job) => h("td", {}, state(job)),
  summary: (job, waits) => {
    const [first, ...others] = [job.name, job.summary].filter(Boolean);
    return h("td", { class: "text what" },
      h("div", { class: "one" }, h("a", { class: "title", href: `#/jobs/${job.id}`, tabindex: "-1", title: job.summary }, first),
        job.plan && h("a", { class: "plan", href: address({ search: job.plan, page: "" }), title: "The plan" }, job.plan)),
      // The line is there before the cause is known: nothing jumps when that comes.
      WAITING.includes(job.status) && h("div", { class: "waits" }, waitsFor(waits ?? ["other", ""])),
      job.reason_ended && h("div", { class: `ended ${job.outcome}` }, linked(job.reason_ended)),
      others.map((text) => h("div", { class: "faint one" }, text)),
      job.reason && h("div", { class: "faint" }, job.reason));
  },
};

function waitsFor([cause, resource]) {
  if (cause === "dependency" && resource) return linked(`waits for ${resource.includes(",") ? "jobs" : "job"} ${resource}`);
  return [CAUSES[cause] ?? CAUSES.other, resource && `: ${resource}`];
}

function cell(job, { name, kind }, waits) {
  const value = job[name];
  if (name in CELLS) return CELLS[name](job, waits);
  if (kind === "time") return h("td", { class: "wide" }, when(value));
  return h("td", { class: kind === "number" ? "number wide" : "wide" }, value == null ? "" : String(value));
}

// ---------------------------------------------------------------- many at once

const isRunning = (job) => job.status === "running";

/** Whether there is something that the user may do with this job and with others at once. */
function mayChange(context, found, job) {
  const right = FINAL.includes(job.status) ? "submit" : "cancel";
  return found.may ? (found.may[job.id] ?? []).includes(right) : context.may(right);
}

/** A button with a shorter text for a narrow screen. */
function short(text, shorter, attributes) {
  return h("button", { "aria-label": text, ...attributes }, h("span", { class: "wide" }, text), h("span", { class: "narrow" }, shorter));
}

function actions(context, chosen, over) {
  if (!chosen.size) return [];
  const all = [...chosen.values()];
  const open = all.filter((job) => !FINAL.includes(job.status));
  const ended = all.filter((job) => FINAL.includes(job.status));
  const running = open.filter(isRunning).length;
  const act = (jobs, verb, question, work, field) => async () => {
    const answer = await ask(question, `${verb} ${count(jobs.length, "job")}`, field);
    if (answer == null) return;
    notice(outcome(verb, await each(jobs, (job) => work(job, answer))), true);
    chosen.clear();
    over();
  };
  const stop = running ? ` ${count(running, "job")} of them ${running === 1 ? "runs" : "run"}, and will be stopped.` : "";
  const button = (jobs, verb, right, kind, ...more) => context.may(right) && short(`${verb} ${jobs.length.toLocaleString("en")}`,
    verb.replace("Reprioritise", "Priority"), { class: kind, disabled: !jobs.length, click: act(jobs, verb, ...more) });
  const size = all.length.toLocaleString("en");
  return [
    h("strong", { class: "wide" }, `${size} chosen`),
    button(open, "Cancel", "cancel", "danger", `Cancel ${count(open.length, "job")}?${stop}`,
      (job) => api("DELETE", `/2/jobs/${job.id}${isRunning(job) ? "?kill=1" : ""}`)),
    button(open, "Reprioritise", "cancel", "", `Another priority for ${count(open.length, "job")}?`,
      (job, answer) => api("PUT", `/2/jobs/${job.id}/priority`, { priority: Number(answer) }),
      { label: "Priority, -20 (most urgent) to 19", value: 0, more: { type: "number", min: -20, max: 19, required: true } }),
    button(ended, "Retry", "submit", "", `Submit ${count(ended.length, "new job")} like these?`,
      (job) => api("POST", `/2/jobs/${job.id}/retry`, { whole: job.status === "success" })),
    short("Choose none", `${size} \u00d7`, { click: () => { chosen.clear(); over(); } }),
  ].filter(Boolean);
}

/** Do something with each job, some at a time, the refusals. Those that run come last: where one ends, another must not start. */
async function each(all, work) {
  const refused = [];
  const worker = async (left) => {
    for (let job = left.shift(); job; job = left.shift()) {
      try {
        const answer = await work(job);
        if (Array.isArray(answer) && !answer[0]) refused.push(answer[1]);
      } catch (error) {
        refused.push(`job ${job.id}: ${error.message}`);
      }
    }
  };
  for (const left of [all.filter((job) => !isRunning(job)), all.filter(isRunning)]) {
    await Promise.all(Array.from({ length: AT_ONCE }, () => worker(left)));
  }
  return { done: all.length - refused.length, refused };
}

function outcome(verb, { done, refused }) {
  const words = `${verb}: done for ${count(done, "job")}`;
  return refused.length ? `${words}, refused for ${refused.length}: ${refused[0]}` : words;
}
