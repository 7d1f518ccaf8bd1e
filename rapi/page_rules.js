// Filter rules, with a look at what a new one would do; and the health of the daemon.

import { api } from "./page_api.js";
import { ask, bytes, count, h, linked, notice, span, swap, table, when } from "./page_parts.js";
import { locksIn } from "./page_words.js";

const ACTIONS = ["PAUSE", "REJECT", "ACCEPT", "CONTINUE", "RATE_LIMIT"];

export async function rules(context) {
  const body = h("div", {});
  const load = async () => {
    const found = await api("GET", "/2/rules");
    if (context.signal.aborted) return;
    swap(body, found.length ? list(context, found, load) : h("p", {}, "There are no filter rules."));
  };
  context.whenChanged(load);
  await load();
  return [h("h1", {}, "Filter rules"), body, context.may("filters") && form(load, context.me)].filter(Boolean);
}

function list(context, found, load) {
  const rows = found.map((rule) => h("tr", {},
    h("td", { class: "number", "data-head": "Priority" }, String(rule.priority)),
    h("td", { "data-head": "Action" }, [rule.action].flat().join(" ")),
    h("td", { class: "text" }, rule.name && h("strong", {}, `${rule.name}: `), rule.predicates.length ? rule.predicates.map(described) : "every job",
      h("div", { class: "faint" }, rule.reason_trail.map(([, text]) => text).filter(Boolean).join("; "))),
    h("td", { "data-head": "State" }, rule.state, h("div", { class: "faint" }, window(rule))),
    h("td", { class: "number", "data-head": "Hits" }, rule.hits == null ? "" : String(rule.hits)),
    h("td", {}, rule.may_change && h("button", { class: "danger", click: async () => {
      if (!(await ask("Delete this filter rule?", "Delete the rule"))) return;
      await api("DELETE", `/2/filters/${rule.uuid}`).then(() => notice("The rule is deleted", true), (error) => notice(error.message));
      await load();
    }, "aria-label": `Delete rule ${rule.name || rule.uuid}` }, "Delete"))));
  return table([{ title: "Priority", kind: "number" }, "Action", "Applies to", "State", { title: "Hits", kind: "number" }, ""], rows, "Filter rules", "stacked");
}

/** A predicate in words if it is a simple one, else as it is stored. */
function described(predicate, place) {
  const [name, expression] = predicate;
  const simple = name === "!" ? simplified(expression, "no ") : simplified(predicate, "");
  return [place ? ", and " : "", simple ?? h("code", {}, JSON.stringify(name === "!" ? predicate : [name, expression]))];
}

const WORDS = { lock: ["touches", "job that touches"], opcode: ["OP_ID", "opcode"], reason: ["reason", "reason"], jobid: ["id", "job"] };

function simplified([name, expression], not) {
  const [field, word] = WORDS[name] ?? [];
  const isEqual = (one, of) => one.length === 3 && (one[0] === "=" || one[0] === "==") && one[1] === of;
  const values = (expression[0] === "|" ? expression.slice(1) : [expression]).map((one) => {
    if (isEqual(one, field)) return one[2];
    const [operator, touches, mode, ...more] = one;
    const isMode = name === "lock" && operator === "&" && !more.length && isEqual(touches, field) && isEqual(mode ?? [], "mode");
    return isMode ? `${touches[2]} (${mode[2]})` : null;
  });
  return values.includes(null) ? null : `${not}${word} ${values.join(" or ")}`;
}

function window(rule) {
  return [rule.valid_from && ["from ", when(rule.valid_from)], rule.valid_until && [" until ", when(rule.valid_until)]].filter(Boolean).flat();
}

function form(load, me) {
  const fields = {
    action: h("select", { name: "action" }, ACTIONS.map((one) => h("option", {}, one))),
    limit: h("input", { name: "limit", type: "number", min: 0, value: 1 }),
    locks: h("input", { name: "locks", placeholder: "node/n7, or node/n7:exclusive", spellcheck: "false" }),
    opcodes: h("input", { name: "opcodes", placeholder: "OP_EXEC", spellcheck: "false", value: me.opcodes?.join(" ") }),
    except: h("input", { name: "except" }),
    reason: h("input", { name: "reason" }),
    name: h("input", { name: "name" }),
    priority: h("input", { name: "priority", type: "number", min: 0, value: 10 }),
    predicates: h("textarea", { name: "predicates", rows: 3, spellcheck: "false", placeholder: '[["jobid", [">", "id", 17]]]' }),
    from: h("input", { name: "from", type: "datetime-local" }),
    until: h("input", { name: "until", type: "datetime-local" }),
  };
  const limit = h("label", { hidden: true }, "At once", fields.limit);
  fields.action.addEventListener("change", () => { limit.hidden = fields.action.value !== "RATE_LIMIT"; });
  const preview = h("div", { "aria-live": "polite", class: "full" });
  const show = async () => {
    try {
      preview.replaceChildren(effect(await api("POST", "/2/simulate", { rule: written(fields) })));
    } catch (error) {
      preview.replaceChildren(h("p", { role: "alert" }, error.message));
    }
  };
  const add = async (event) => {
    event.preventDefault();
    try {
      const rule = written(fields);
      if (!rule.predicates.length && !(await ask("This rule is for every job.", "Add it for every job"))) return;
      await api("POST", "/2/rules", rule);
      notice("The rule is in force", true);
      preview.replaceChildren();
      event.target.reset();
      limit.hidden = true;
      await load();
    } catch (error) {
      notice(error.message);
    }
  };
  return h("section", {}, h("h2", {}, "Add a rule"),
    h("form", { class: "stack panel fields", submit: add },
      h("label", {}, "Action", fields.action), limit,
      h("label", {}, "Locks: for jobs that touch one of them", fields.locks),
      h("label", {}, "Opcodes: for jobs with one of them", fields.opcodes),
      h("label", {}, "But not for jobs with this reason", fields.except),
      h("label", {}, "Reason", fields.reason),
      h("label", {}, "In force until (empty: for ever)", fields.until),
      h("details", {}, h("summary", {}, "More"), h("div", { class: "stack fields" },
        h("label", {}, "Name", fields.name),
        h("label", {}, "Priority (0 is looked at first)", fields.priority),
        h("label", {}, "In force from (empty: now)", fields.from),
        h("label", { class: "full" }, "Predicates, as JSON", fields.predicates))),
      preview,
      h("div", { class: "bar" },
        h("button", { type: "button", click: show }, "What would it do?"),
        h("button", { class: "strong" }, "Add the rule"))));
}

/** The rule of the form; an Error says what is wrong. */
function written(fields) {
  const action = fields.action.value;
  const any = (parts) => (parts.length > 1 ? ["|", ...parts] : parts[0]);
  const locks = locksIn(fields.locks.value).map(([level, name, mode]) => {
    const touches = ["=", "touches", `${level}/${name}`];
    return mode ? ["&", touches, ["=", "mode", mode]] : touches;
  });
  const opcodes = fields.opcodes.value.split(/[\s,]+/).filter(Boolean).map((name) => ["=", "OP_ID", name]);
  const predicates = JSON.parse(fields.predicates.value || "[]");
  if (locks.length) predicates.unshift(["lock", any(locks)]);
  if (opcodes.length) predicates.unshift(["opcode", any(opcodes)]);
  if (fields.except.value) predicates.push(["!", ["reason", ["=", "reason", fields.except.value]]]);
  const found = {
    priority: Number(fields.priority.value),
    action: action === "RATE_LIMIT" ? [action, Number(fields.limit.value)] : action,
    predicates,
    reason: fields.reason.value,
    name: fields.name.value.trim(),
  };
  const seconds = (field) => new Date(field.value).getTime() / 1000;
  if (fields.from.value) found.valid_from = seconds(fields.from);
  if (fields.until.value) found.valid_until = seconds(fields.until);
  return found;
}

/** What the daemon calls a rule that is not stored. */
const NEW = "ffffffff-ffff-ffff-ffff-ffffffffffff";
const WAITING = { lock: "for a lock", rule: "because of a filter rule", limit: "for a rate limit", dependency: "for another job",
  slots: "for a run slot", order: "for their turn" };

function effect(found) {
  const waiting = found.waiting.slice(0, 10).map((one) => h("li", {}, h("a", { href: `#/jobs/${one.id}` }, `job ${one.id}`), ` ${one.text.replace(NEW, "the new rule")}`));
  const counts = Object.entries(found.counts).map(([kind, number]) => `${number} ${WAITING[kind] ?? `(${kind})`}`).join(", ");
  const ended = found.ended.length ? `; ${count(found.ended.length, "job")} would end at once` : "";
  return h("div", { class: "panel why" },
    h("p", {}, `${count(found.start.length, "job")} would start at once; would wait: ${counts || "none"}${ended}.`),
    found.paused.length > 0 && h("p", {}, linked(`Held before the next opcode: job${found.paused.length > 1 ? "s" : ""} ${found.paused.join(", ")}.`)),
    waiting.length > 0 && h("ul", {}, waiting));
}

// ---------------------------------------------------------------- health

export async function health(context) {
  const body = h("div", {});
  const load = async () => {
    const [found, cluster, queue, limits, ...objects] = await Promise.all(
      ["/2/daemon", "/2/info", "/2/queue?limit=1", "/2/limits", "/2/groups", "/2/nodes", "/2/instances", "/2/networks"].map((path) => api("GET", path)));
    if (!context.signal.aborted) swap(body, daemon(found, cluster, queue, limits, objects));
  };
  context.every(5, load);
  await load();
  return [h("h1", {}, "Health"), body];
}

/** What jobs may take, and what the disk has. */
function room(disk, limits) {
  const most = limits.output_bytes ? bytes(limits.output_bytes) : "no limit";
  const kept = [limits.keep_seconds && `for ${span(limits.keep_seconds)}`, limits.keep_bytes && `up to ${bytes(limits.keep_bytes)}`].filter(Boolean);
  return [
    ["Run slots", String(limits.running_possible ?? limits.running)],
    ["Output", `${bytes(limits.output_job_bytes)} of each job, ${most} in all`],
    ["Ended jobs", `are kept ${kept.join(", ") || "until they are purged"}`],
    disk && ["Disk", `${bytes(disk.free)} of ${bytes(disk.total)} free; ${["jobs", "output", "archive", "journal", "log", "other"].map((part) => `${part} ${bytes(disk[part])}`).join(", ")}`],
  ];
}

function daemon(found, cluster, queue, limits, [groups, nodes, instances, networks]) {
  const jobs = Object.entries({ ...queue.counts, ...queue.outcomes }).filter(([word, number]) => number && word !== "error");
  const state = found.is_read_only ? "READ-ONLY: the disk refuses writes" : found.is_disk_full ? "DISK FULL: no new jobs are taken, and none start" : found.lacks_room ? "NO ROOM on the disk: no new jobs are taken" : found.is_drained ? "drained: it takes no jobs" : "open";
  const facts = [
    ["Daemon", `ganger ${found.version}, pid ${found.pid}, up ${span(Date.now() / 1000 - found.started)}`],
    ["Queue", state],
    ["Data", found.data],
    ["Cluster", `${cluster.name || "(without a name)"}${cluster.master ? `, master ${cluster.master}` : ""}`],
    ["Objects", [count(groups.length, "node group"), count(nodes.length, "node"), count(instances.length, "instance"),
      count(networks.length, "network")].join(", ")],
    ["Jobs", jobs.map(([word, number]) => `${number.toLocaleString("en")} ${word}`).join(", ") || "none"],
    ...room(found.disk, limits),
    ["Memory", Object.entries(found.memory).map(([name, size]) => `${name} ${bytes(size)}`).join(", ")],
    ["Disk flushes", found.flushes.toLocaleString("en")],
    found.quarantined.length && ["Quarantined", found.quarantined.join(", ")],
    found.opcode_problems.length && ["Not loaded", found.opcode_problems.join(", ")],
  ].filter(Boolean);
  const rows = found.components.map((one) => h("tr", {},
    h("td", {}, one.name),
    h("td", {}, h("span", { class: `status ${one.is_ready ? "success" : "error"}` }, one.is_ready ? "ready" : "not ready")),
    h("td", { class: "number" }, String(one.restarts)),
    h("td", { class: "number" }, found.longest_turns[one.name] == null ? "" : `${(found.longest_turns[one.name] * 1000).toFixed(1)} ms`)));
  return [
    h("div", { class: "panel" }, h("dl", {}, facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))),
    h("h2", {}, "Components"),
    table(["Name", "State", { title: "Restarts", kind: "number" }, { title: "Longest turn", kind: "number" }], rows, "Components"),
  ];
}
