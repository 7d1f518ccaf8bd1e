// The list of jobs, and one job: its opcodes, its log as it comes, its chain, and why it waits.

import { api, follow } from "./page_api.js";
import { ask, count, h, linked, marked, moment, notice, span, status, table } from "./page_parts.js";

const FINAL = ["canceled", "success", "error"];
const STATUSES = ["queued", "waiting", "canceling", "running", ...FINAL];
const kept = { status: "", search: "", limit: 100 };

export async function jobs(context) {
  const search = h("input", { type: "search", placeholder: "Words in id, summary or reason", "aria-label": "Search", value: kept.search });
  const choice = h("select", { "aria-label": "Status" },
    h("option", { value: "" }, "all statuses"),
    STATUSES.map((one) => h("option", { value: one, selected: one === kept.status }, one)));
  const body = h("div", {});
  let [asked, answered] = [0, 0];
  const load = async () => {
    const mine = asked += 1;
    const query = new URLSearchParams({ limit: kept.limit });
    if (kept.search) query.set("search", kept.search);
    if (kept.status) query.append("status", kept.status);
    const found = await api("GET", `/2/queue?${query}`);
    // An answer may come after that to a later question.
    if (context.signal.aborted || mine < answered) return;
    answered = mine;
    const none = kept.search || kept.status ? "No job matches." : "There are no jobs.";
    const words = STATUSES.map((one) => `${found.counts[one]} ${one}`).join(", ");
    body.replaceChildren(
      h("p", { class: "faint" }, words),
      found.jobs.length ? list(found.jobs, found.columns) : h("p", {}, none),
      found.count > found.jobs.length && h("p", {},
        `${count(found.count, "job")} in all. `,
        h("button", { click: () => { kept.limit = Math.min(1000, kept.limit * 2); load(); } }, "Show more")) || "");
  };
  const changed = () => { kept.search = search.value; kept.status = choice.value; load(); };
  search.addEventListener("input", changed);
  choice.addEventListener("change", changed);
  context.whenChanged(load);
  await load();
  return [
    h("h1", {}, "Jobs"),
    h("div", { class: "bar" }, search, choice,
      context.may("submit") && h("button", { class: "strong", click: () => submit(context) }, "Submit a job")),
    body,
  ];
}

const CELLS = {
  id: (job) => h("td", { class: "number" }, h("a", { href: `#/jobs/${job.id}` }, String(job.id))),
  status: (job) => h("td", {}, status(job.status)),
  summary: (job) => h("td", { class: "text" }, job.summary, job.reason && h("div", { class: "faint" }, job.reason)),
};
const HEADS = { id: { title: "Id", kind: "number" }, status: "Status", summary: "What" };

function cell(job, { name, kind }) {
  const value = job[name];
  if (name in CELLS) return CELLS[name](job);
  if (kind === "time") return h("td", { class: "wide" }, moment(value));
  return h("td", { class: `${kind} wide` }, value == null ? "" : String(value));
}

function list(found, columns) {
  const rows = found.map((job) => h("tr", {},
    columns.map((column) => cell(job, column)),
    h("td", { class: "wide" }, job.started && span((job.ended ?? Date.now() / 1000) - job.started))));
  const heads = columns.map(({ name, title, kind }) => HEADS[name] ?? { title, kind: kind === "time" ? "wide" : `${kind} wide` });
  return table([...heads, { title: "Ran", kind: "wide" }], rows, "Jobs");
}

async function submit(context) {
  const isLimited = context.me.opcodes !== null;
  const first = { OP_ID: isLimited ? context.me.opcodes[0] : "OP_TEST_DELAY", duration: 5.0, on_master: false };
  const ops = h("textarea", { rows: 8, cols: 60, spellcheck: "false" }, JSON.stringify([first], null, 1));
  const reason = h("input", {});
  const problem = h("p", { role: "alert" });
  const send = async (event) => {
    event.preventDefault();
    try {
      const asked = { ops: JSON.parse(ops.value) };
      if (reason.value) asked.reason = reason.value;
      const id = await api("POST", "/2/jobs", asked);
      dialog.close();
      location.hash = `#/jobs/${id}`;
    } catch (error) {
      problem.replaceChildren(...marked(error.message));
    }
  };
  const dialog = h("dialog", { "aria-label": "Submit a job" },
    h("form", { class: "stack", submit: send },
      h("h2", {}, "Submit a job"),
      h("label", {}, "Opcodes, as JSON", ops),
      h("label", {}, "Reason", reason),
      problem,
      h("div", { class: "bar" },
        h("button", { class: "strong" }, "Submit"),
        h("button", { type: "button", click: () => dialog.close() }, "Cancel"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// ---------------------------------------------------------------- one job

export async function job(context) {
  const id = Number(context.path[0]);
  const head = h("div", {});
  const why = h("div", {});
  const ops = h("div", {});
  const load = async () => {
    const [seen, explained] = await Promise.all([
      api("GET", `/2/queue/${id}`), api("GET", `/2/jobs/${id}/explain`)]);
    if (context.signal.aborted) return;
    head.replaceChildren(...summary(context, seen, load));
    why.replaceChildren(...reasons(seen.job, explained));
    ops.replaceChildren(...opcodes(seen.job));
  };
  context.whenChanged(load);
  await load();
  const log = h("pre", { "aria-label": "Log and output", tabindex: 0 });
  stream(id, log, context.signal);
  return [h("h1", {}, `Job ${id}`), head, why, h("h2", {}, "Log and output"), log, h("h2", {}, "Opcodes"), ops];
}

function summary(context, seen, load) {
  const { job: one, dependents } = seen;
  const isFinal = FINAL.includes(one.status);
  const link = (id) => [h("a", { href: `#/jobs/${id}` }, String(id)), " "];
  const facts = [
    ["Status", status(one.status)],
    ["What", one.summary],
    one.reason && ["Reason", one.reason],
    ["Priority", String(one.priority)],
    ["Received", moment(one.received)],
    one.started && ["Started", moment(one.started)],
    one.ended && ["Ended", `${moment(one.ended)}${one.started ? ` (ran ${span(one.ended - one.started)})` : ""}`],
    one.depends?.length && ["Depends on", one.depends.flatMap(([id]) => link(id))],
    dependents.length && ["Awaited by", dependents.flatMap(link)],
    one.retry_of && ["Retry of", link(one.retry_of)],
    one.retried_by.length && ["Retried by", one.retried_by.flatMap(link)],
  ].filter(Boolean);
  return [
    h("div", { class: "panel" }, h("dl", {}, facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))),
    h("div", { class: "bar" }, actions(context, one, isFinal, load)),
  ];
}

function actions(context, one, isFinal, load) {
  const act = (question, name, method, path, body) => async () => {
    if (!(await ask(question, name))) return;
    await done(api(method, path, body), load);
  };
  const found = [];
  if (!isFinal && context.may("cancel")) {
    const isRunning = one.status === "running";
    found.push(isRunning
      ? h("button", { class: "danger", click: act(`Job ${one.id} runs. Stop what it does?`, "Stop the job", "DELETE", `/2/jobs/${one.id}?kill=1`) }, "Stop")
      : h("button", { class: "danger", click: act(`Cancel job ${one.id}?`, "Cancel the job", "DELETE", `/2/jobs/${one.id}`) }, "Cancel"));
    found.push(h("button", { click: async () => {
      const text = await ask(`Another priority for job ${one.id}?`, "Change the priority",
        { label: "Priority, -20 (most urgent) to 19", value: one.priority, more: { type: "number", min: -20, max: 19, required: true } });
      if (text != null) await done(api("PUT", `/2/jobs/${one.id}/priority`, { priority: Number(text) }), load);
    } }, "Priority"));
  }
  if (!isFinal && context.may("filters")) {
    const rule = { priority: 0, predicates: [["jobid", ["=", "id", one.id]]], action: "PAUSE", reason: `job ${one.id} is paused` };
    found.push(h("button", { click: act(`Pause job ${one.id} with a filter rule?`, "Pause the job", "POST", "/2/rules", rule) }, "Pause"));
  }
  if (isFinal && context.may("submit")) {
    found.push(h("button", { click: async () => {
      if (!(await ask(`Submit a new job like job ${one.id}?`, "Retry the job"))) return;
      // Of a job that succeeded there is nothing left to retry but the whole.
      const id = await api("POST", `/2/jobs/${one.id}/retry`, { whole: one.status === "success" }).catch((error) => notice(error.message));
      if (id) location.hash = `#/jobs/${id}`;
    } }, "Retry"));
  }
  return found;
}

async function done(request, load) {
  try {
    const answer = await request;
    const [isAccepted, text] = Array.isArray(answer) ? answer : [true, "Done"];
    notice(text, isAccepted);
  } catch (error) {
    notice(error.message);
  }
  await load();
}

function reasons(one, explained) {
  if (FINAL.includes(one.status)) return [];
  if (!explained.obstacles.length) return [h("p", { class: "faint" }, explained.text)];
  return [h("section", { class: "panel why", "aria-label": "Why it waits" },
    h("strong", {}, "Why it waits"),
    h("ol", {}, explained.obstacles.map((obstacle) => h("li", {}, linked(obstacle.text),
      obstacle.rule && [" ", h("a", { href: "#/rules" }, "(rules)")]))),
    explained.change && h("p", {}, h("span", { class: "faint" }, "What would help: "), linked(explained.change)))];
}

function opcodes(one) {
  const rows = (one.ops ?? []).map((op, place) => h("tr", {},
    h("td", { class: "number" }, String(place)),
    h("td", {}, status(op.status)),
    h("td", { class: "text" }, op.summary,
      h("details", {}, h("summary", {}, "parameters"), h("pre", {}, JSON.stringify(op.input, null, 1))),
      op.result != null && h("details", {}, h("summary", {}, "result"), h("pre", {}, JSON.stringify(op.result, null, 1)))),
    h("td", { class: "wide" }, moment(op.executed ?? op.started)),
    h("td", { class: "wide" }, op.executed && span((op.ended ?? Date.now() / 1000) - op.executed))));
  return [table([{ title: "No.", kind: "number" }, "Status", "What", { title: "Began", kind: "wide" }, { title: "Ran", kind: "wide" }], rows, "Opcodes")];
}

const SHOWN_CHARACTERS = 500_000;

function stream(id, log, signal) {
  let shown = 0;
  const add = (text, kind = "") => {
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
    const piece = h("span", { class: kind }, text);
    log.append(piece);
    shown += piece.textContent.length;
    while (shown > SHOWN_CHARACTERS && log.firstChild) {
      shown -= log.firstChild.textContent.length;
      log.firstChild.remove();
    }
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  };
  // A piece of output may end within a letter, whose rest comes with the next one.
  const decoders = {};
  const decoded = ({ op_index: place, stream: name, text, data }) => {
    const bytes = text == null ? Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0)) : new TextEncoder().encode(text);
    const decoder = decoders[`${place} ${name}`] ??= new TextDecoder("utf-8", { ignoreBOM: true });
    return decoder.decode(bytes, { stream: true });
  };
  follow(`/2/jobs/${id}/log`, (kind, data) => {
    if (kind === "output") add(decoded(data), data.stream);
    else if (kind === "log") add(`${moment(data.time)} ${data.text}\n`, "note");
    else if (kind === "gap") add(`\n... ${data.missing} bytes are missing (${data.gap}) ...\n`, "note");
    else if (kind === "error") add(`\n${data.message}\n`, "stderr");
    else if (kind === "end") { add(`\n${data.status}\n`, "note"); return false; }
    return true;
  }, signal);
}
