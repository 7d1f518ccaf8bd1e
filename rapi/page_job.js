// One job: first why it ended or waits, then what it is, the jobs around it, its log and its opcodes.

import { api, follow } from "./page_api.js";
import { FINAL, ask, elapsed, h, linked, moment, notice, span, state, status, swap, table, when } from "./page_parts.js";
import { quoted } from "./page_words.js";

export async function job(context) {
  const id = Number(context.path[0]);
  const first = h("div", {});
  const facts = h("div", { class: "side" });
  const ops = h("div", {});
  const called = h("span", {});
  let isOver = false;
  const load = async () => {
    const [seen, explained] = await Promise.all([
      api("GET", `/2/queue/${id}`), isOver ? null : api("GET", `/2/jobs/${id}/explain`)]);
    if (context.signal.aborted) return;
    isOver = FINAL.includes(seen.job.status);
    called.textContent = seen.job.name ? ` ${seen.job.name}` : "";
    swap(first, verdict(seen, explained), h("div", { class: "bar" }, actions(context, seen, isOver, load)));
    swap(facts, summary(seen.job), around(seen));
    swap(ops, opcodes(seen.job));
  };
  // Why a job waits changes with other jobs, and with rules and locks.
  context.every(3, async () => { if (!isOver) await load(); });
  context.whenChanged(load, (event) => !isOver || event.job_id === id);
  await load();
  const log = h("pre", { "aria-label": "Log and output", tabindex: 0 });
  stream(id, log, context.signal);
  return [h("h1", {}, `Job ${id}`, called), first, h("div", { class: "columns" },
    h("div", {}, h("h2", {}, "Log and output"), log, h("h2", {}, "Opcodes"), ops), facts)];
}

// ---------------------------------------------------------------- why

const sentence = (word) => word[0].toUpperCase() + word.slice(1).replace("-", " ");

/** Why the job has ended, or why it waits, or that it runs. */
function verdict({ job: one, around: others }, explained) {
  if (one.outcome) {
    const cause = others.find((other) => other.id === one.cause);
    return h("section", { class: `panel why ${one.outcome}`, "aria-label": "Why it ended" },
      h("p", {}, h("strong", { class: `status ${one.outcome}` }, sentence(one.outcome)),
        one.reason_ended ? [": ", linked(one.reason_ended)] : one.started != null && ` after ${span(one.ended - one.started)}`),
      one.cause && h("p", {}, "The cause: ", h("a", { href: `#/jobs/${one.cause}` }, `job ${one.cause}`), " ",
        cause ? [state(cause), " ", h("span", { class: "faint" }, cause.name || cause.summary)] : h("span", { class: "faint" }, "(no longer there)")));
  }
  if (!explained?.obstacles.length) {
    return h("section", { class: `panel why ${one.status}`, "aria-label": "What it does" },
      h("strong", { class: `status ${one.status}` }, sentence(one.status)), one.started && [" for ", elapsed(one)],
      !one.started && explained && `: ${explained.text}`);
  }
  const [next, ...more] = explained.obstacles;
  const line = (obstacle) => [linked(obstacle.text), obstacle.rule && [" ", h("a", { href: "#/rules" }, "(rules)")]];
  return h("section", { class: "panel why", "aria-label": "Why it waits" },
    h("p", {}, h("strong", { class: `status ${one.status}` }, sentence(one.status)), ": ", line(next)),
    more.length > 0 && h("ul", {}, more.map((obstacle) => h("li", {}, line(obstacle)))),
    explained.change && h("p", {}, h("span", { class: "faint" }, "What would help: "), linked(explained.change)));
}

// ---------------------------------------------------------------- what it is

function summary(one) {
  const link = (id) => [h("a", { href: `#/jobs/${id}` }, String(id)), " "];
  const facts = [
    ["Status", state(one)],
    one.name && ["Name", one.name],
    one.plan && ["Plan", h("a", { href: `#/jobs?${new URLSearchParams({ search: one.plan })}` }, one.plan)],
    ["What", one.summary],
    one.reason && ["Reason", one.reason],
    one.user && ["Submitted by", one.user],
    ["Priority", String(one.priority)],
    ["Received", when(one.received, true)],
    one.started && ["Started", when(one.started, true)],
    one.ended && ["Ended", when(one.ended, true)],
    one.started && ["Elapsed", elapsed(one)],
    one.started && one.received && ["Waited", span(one.started - one.received)],
    one.retry_of && ["Retry of", link(one.retry_of)],
    one.retried_by.length && ["Retried by", one.retried_by.flatMap(link)],
  ].filter(Boolean);
  return h("dl", { class: "panel" }, facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

const SHOWN_AROUND = 20;

function around({ job: one, dependents, around: others }) {
  const known = new Map(others.map((other) => [other.id, other]));
  const line = (id, more) => {
    const other = known.get(id);
    return h("li", {}, h("a", { href: `#/jobs/${id}` }, String(id)), " ", other ? state(other) : h("span", { class: "faint" }, "not there"),
      more, other && h("div", { class: "faint one", title: other.summary }, other.name || other.summary));
  };
  const part = (title, lines) => lines.length > 0 && [h("h2", {}, title), h("ul", { class: "panel around" }, lines.slice(0, SHOWN_AROUND)),
    lines.length > SHOWN_AROUND && h("p", { class: "faint" }, `and ${lines.length - SHOWN_AROUND} more`)];
  const accepted = (words) => words.join() !== "success" && h("span", { class: "faint" }, ` (wanted: ${words.join(" or ")})`);
  return [
    part("Depends on", (one.depends ?? []).map(([id, words]) => line(id, accepted(words)))),
    part("Needed by", dependents.map((id) => line(id))),
  ].flat();
}

function actions(context, { job: one, may }, isFinal, load) {
  const act = (question, name, method, path, body) => async () => {
    if (!(await ask(question, name))) return;
    await done(api(method, path, body), load);
  };
  const found = [];
  if (!isFinal && may.includes("cancel")) {
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
  if (!isFinal && may.includes("filters")) {
    // Who may submit named opcodes only keeps rules that name them.
    const names = context.me.opcodes && [...new Set(one.ops.map((op) => op.op_id))].map((name) => ["=", "OP_ID", name]);
    const predicates = [["jobid", ["=", "id", one.id]], ...(names ? [["opcode", ["|", ...names]]] : [])];
    const rule = { priority: 0, predicates, action: "PAUSE", reason: `job ${one.id} is paused` };
    found.push(h("button", { click: act(`Pause job ${one.id} with a filter rule?`, "Pause the job", "POST", "/2/rules", rule) }, "Pause"));
  }
  if (isFinal && may.includes("submit")) {
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

// ---------------------------------------------------------------- opcodes and log

/** What happened to an opcode. Ganeti's status "error" also stands for those that have not begun. */
function happened(one, op) {
  if (op.status !== "error") return op.status;
  const hasBegun = (any) => any.started != null || any.executed != null;
  return !hasBegun(op) && one.ops.some(hasBegun) ? "skipped" : one.outcome ?? "failed";
}

function opcodes(one) {
  const fold = (place, name, text) => h("details", { "data-key": `${name} ${place}` }, h("summary", {}, name), h("pre", {}, text));
  const rows = (one.ops ?? []).map((op, place) => h("tr", {},
    h("td", { class: "number" }, String(place + 1)),
    h("td", {}, status(happened(one, op))),
    h("td", { class: "text" }, h("div", {}, op.summary),
      op.input.argv && fold(place, "command", quoted(op.input.argv)),
      fold(place, "parameters", JSON.stringify(op.input, null, 1)),
      op.result != null && fold(place, "result", JSON.stringify(op.result, null, 1))),
    h("td", { class: "wide" }, when(op.executed ?? op.started)),
    h("td", { class: "wide number" }, op.executed && elapsed({ started: op.executed, ended: op.ended }))));
  return table([{ title: "No.", kind: "number" }, "Status", "What", { title: "Began", kind: "wide" }, { title: "Elapsed", kind: "wide number" }], rows, "Opcodes");
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
    else if (kind === "end") { add(`${shown ? "\n" : "It has printed nothing.\n"}${data.outcome ?? data.status}\n`, "note"); return false; }
    return true;
  }, signal);
}
