// Filter rules, with a look at what a new one would do; and the health of the daemon.

import { api } from "./page_api.js";
import { ask, count, h, moment, notice, span, table } from "./page_parts.js";

const ACTIONS = ["PAUSE", "REJECT", "ACCEPT", "CONTINUE", "RATE_LIMIT"];

export async function rules(context) {
  const body = h("div", {});
  const load = async () => {
    const found = await api("GET", "/2/rules");
    if (context.signal.aborted) return;
    body.replaceChildren(found.length ? list(context, found, load) : h("p", {}, "There are no filter rules."));
  };
  context.whenChanged(load);
  await load();
  return [h("h1", {}, "Filter rules"), body, context.may("filters") && form(load)].filter(Boolean);
}

function list(context, found, load) {
  const rows = found.map((rule) => h("tr", {},
    h("td", { class: "number" }, String(rule.priority)),
    h("td", {}, [rule.action].flat().join(" ")),
    h("td", { class: "text" }, rule.predicates.length ? h("code", {}, JSON.stringify(rule.predicates)) : "every job",
      h("div", { class: "faint" }, rule.reason_trail.map(([, text]) => text).filter(Boolean).join("; "))),
    h("td", {}, rule.state, h("div", { class: "faint" }, window(rule))),
    h("td", { class: "number" }, rule.hits == null ? "" : String(rule.hits)),
    h("td", {}, context.may("filters") && h("button", { class: "danger", click: async () => {
      if (!(await ask("Delete this filter rule?", "Delete the rule"))) return;
      await api("DELETE", `/2/filters/${rule.uuid}`).then(() => notice("The rule is deleted", true), (error) => notice(error.message));
      await load();
    } }, "Delete"))));
  return table([{ title: "Priority", kind: "number" }, "Action", "Applies to", "State", { title: "Hits", kind: "number" }, ""], rows, "Filter rules");
}

function window(rule) {
  return [rule.valid_from && `from ${moment(rule.valid_from)}`, rule.valid_until && `until ${moment(rule.valid_until)}`].filter(Boolean).join(" ");
}

function form(load) {
  const fields = {
    action: h("select", { name: "action" }, ACTIONS.map((one) => h("option", {}, one))),
    limit: h("input", { name: "limit", type: "number", min: 0, value: 1 }),
    priority: h("input", { name: "priority", type: "number", min: 0, value: 10 }),
    predicates: h("textarea", { name: "predicates", rows: 3, spellcheck: "false" }, '[["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]]'),
    reason: h("input", { name: "reason" }),
    from: h("input", { name: "from", type: "datetime-local" }),
    until: h("input", { name: "until", type: "datetime-local" }),
  };
  const limit = h("label", { hidden: true }, "At once", fields.limit);
  fields.action.addEventListener("change", () => { limit.hidden = fields.action.value !== "RATE_LIMIT"; });
  const preview = h("div", { "aria-live": "polite" });
  const rule = () => {
    const action = fields.action.value;
    const found = {
      priority: Number(fields.priority.value),
      action: action === "RATE_LIMIT" ? [action, Number(fields.limit.value)] : action,
      predicates: JSON.parse(fields.predicates.value || "[]"),
      reason: fields.reason.value,
    };
    const seconds = (field) => new Date(field.value).getTime() / 1000;
    if (fields.from.value) found.valid_from = seconds(fields.from);
    if (fields.until.value) found.valid_until = seconds(fields.until);
    return found;
  };
  const show = async () => {
    try {
      preview.replaceChildren(effect(await api("POST", "/2/simulate", { rule: rule() })));
    } catch (error) {
      preview.replaceChildren(h("p", { role: "alert" }, error.message));
    }
  };
  const add = async (event) => {
    event.preventDefault();
    try {
      await api("POST", "/2/rules", rule());
      notice("The rule is in force", true);
      preview.replaceChildren();
      await load();
    } catch (error) {
      notice(error.message);
    }
  };
  return h("section", {}, h("h2", {}, "Add a rule"),
    h("form", { class: "stack panel", submit: add },
      h("label", {}, "Action", fields.action), limit,
      h("label", {}, "Priority (0 is looked at first)", fields.priority),
      h("label", {}, "Predicates, as JSON; [] applies to every job", fields.predicates),
      h("label", {}, "Reason", fields.reason),
      h("label", {}, "In force from (empty: now)", fields.from),
      h("label", {}, "In force until (empty: for ever)", fields.until),
      preview,
      h("div", { class: "bar" },
        h("button", { type: "button", click: show }, "What would it do?"),
        h("button", { class: "strong" }, "Add the rule"))));
}

function effect(found) {
  const waiting = found.waiting.slice(0, 10).map((one) => h("li", {}, h("a", { href: `#/jobs/${one.id}` }, `job ${one.id}`), ` ${one.text}`));
  const counts = Object.entries(found.counts).map(([kind, number]) => `${number} for a ${kind}`).join(", ");
  const ended = found.ended.length ? `; ${count(found.ended.length, "job")} would end at once` : "";
  return h("div", { class: "panel why" },
    h("p", {}, `${count(found.start.length, "job")} would start at once; would wait: ${counts || "none"}${ended}.`),
    found.paused.length > 0 && h("p", {}, `Held before the next opcode: ${found.paused.join(", ")}.`),
    waiting.length > 0 && h("ul", {}, waiting));
}

// ---------------------------------------------------------------- health

export async function health(context) {
  const body = h("div", {});
  const load = async () => {
    const [found, cluster, ...objects] = await Promise.all(
      ["/2/daemon", "/2/info", "/2/groups", "/2/nodes", "/2/instances", "/2/networks"].map((path) => api("GET", path)));
    if (!context.signal.aborted) body.replaceChildren(...daemon(found, cluster, objects));
  };
  const timer = setInterval(() => load().catch((error) => notice(error.message)), 5000);
  context.signal.addEventListener("abort", () => clearInterval(timer));
  await load();
  return [h("h1", {}, "Health"), body];
}

function daemon(found, cluster, [groups, nodes, instances, networks]) {
  const mib = (size) => `${(size / 1048576).toFixed(0)} MiB`;
  const state = found.is_read_only ? "READ-ONLY: the disk refuses writes" : found.is_drained ? "drained: it takes no jobs" : "open";
  const facts = [
    ["Daemon", `ganger ${found.version}, pid ${found.pid}, up ${span(Date.now() / 1000 - found.started)}`],
    ["Queue", state],
    ["Data", found.data],
    ["Cluster", `${cluster.name || "(without a name)"}${cluster.master ? `, master ${cluster.master}` : ""}`],
    ["Objects", [count(groups.length, "node group"), count(nodes.length, "node"), count(instances.length, "instance"),
      count(networks.length, "network")].join(", ")],
    ["Jobs", Object.entries(found.counts).filter(([name]) => name !== "last_id").map(([name, number]) => `${number} ${name}`).join(", ")],
    ["Memory", Object.entries(found.memory).map(([name, size]) => `${name} ${mib(size)}`).join(", ")],
    ["Flushes", found.flushes.toLocaleString()],
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
