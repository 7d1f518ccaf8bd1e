// The form for a new job: a command with its locks, or any opcodes as JSON.

import { api } from "./page_api.js";
import { h, marked } from "./page_parts.js";
import { locksIn, secondsIn, split } from "./page_words.js";

export async function submit(context) {
  const { me } = context;
  if (!context.may("submit")) {
    return [h("h1", {}, "Submit a job"), h("p", {}, `${me.name} may not submit jobs. `, grant(me, "--role operate --exec"))];
  }
  const others = me.opcodes === null ? null : me.opcodes.filter((name) => name !== "OP_EXEC");
  const fields = {
    command: h("textarea", { rows: 2, spellcheck: "false", placeholder: "make -C /srv/site all" }),
    shell: h("input", { type: "checkbox" }),
    locks: h("input", { placeholder: "node/n1, instance/web:shared", spellcheck: "false" }),
    cwd: h("input", { placeholder: "/", spellcheck: "false" }),
    timeout: h("input", { placeholder: "none; or 90, 30m, 2h" }),
    name: h("input", {}),
    reason: h("input", {}),
    priority: h("input", { type: "number", min: -20, max: 19, placeholder: "0" }),
    after: h("input", { placeholder: "17, backup", spellcheck: "false" }),
    ops: h("textarea", { rows: 8, spellcheck: "false" }, me.may_run_commands ? "" : JSON.stringify([first(others)], null, 1)),
  };
  const parted = h("div", { class: "parted full", "aria-live": "polite", "aria-label": "The command's arguments" });
  const problem = h("p", { role: "alert", class: "full" });
  const argv = () => (fields.shell.checked ? ["sh", "-c", fields.command.value] : split(fields.command.value).argv);
  const show = () => {
    try {
      const { hasSigns } = split(fields.command.value);
      const words = fields.command.value.trim() ? argv() : [];
      parted.replaceChildren(...words.map((word) => h("code", {}, word)),
        ...(hasSigns && !fields.shell.checked ? [h("span", { class: "faint" }, "No shell reads this: signs such as | and $ are plain text.")] : []));
    } catch (error) {
      parted.replaceChildren(h("span", { class: "faint" }, fields.shell.checked ? "" : error.message));
    }
  };
  for (const one of [fields.command, fields.shell]) one.addEventListener("input", show);
  const send = async (event) => {
    event.preventDefault();
    try {
      location.hash = `#/jobs/${await api("POST", "/2/jobs", await asked(fields, argv))}`;
    } catch (error) {
      problem.replaceChildren(...marked(error.message));
    }
  };
  const json = h("label", { class: "full" }, "Opcodes, as JSON", fields.ops);
  const commands = me.may_run_commands && [
    h("label", { class: "full" }, "Command", fields.command), parted,
    h("label", { class: "tick full" }, fields.shell, "Let a shell read it (for pipes, variables and the like)"),
    h("label", {}, "Locks", fields.locks),
  ];
  return [
    h("h1", {}, "Submit a job"),
    h("form", { class: "stack panel fields", submit: send },
      commands || h("p", { class: "faint full" }, `${me.name} may not run commands. `, grant(me, "--exec")),
      !commands && others?.length > 0 && h("p", { class: "full" }, "You may submit: ", others.map((name) => [h("code", {}, name), " "])),
      !commands && json,
      h("label", {}, "Name", fields.name),
      h("label", {}, "Reason", fields.reason),
      commands && [h("label", {}, "Working directory", fields.cwd), h("label", {}, "Timeout", fields.timeout)],
      h("details", {}, h("summary", {}, "More"), h("div", { class: "stack fields" },
        h("label", {}, "Priority, -20 (most urgent) to 19", fields.priority),
        h("label", {}, "After these jobs (ids or names), if they succeed", fields.after),
        commands && (others === null || others.length > 0) && json)),
      problem,
      h("div", { class: "bar" }, h("button", { class: "strong" }, "Submit"), h("a", { class: "button", href: "#/jobs" }, "Back")))];
}

/** What the administrator types to let this user do more. */
function grant(me, options) {
  return ["Who administers the server grants it: ", h("code", {}, `ganger rapi user change ${me.name} ${options}`)];
}

function first(opcodes) {
  const name = opcodes === null ? "OP_TEST_DELAY" : opcodes[0] ?? "";
  return name === "OP_TEST_DELAY" ? { OP_ID: name, duration: 5.0, on_master: false } : { OP_ID: name };
}

/** The job of the form; an Error names the field that is wrong. */
async function asked(fields, argv) {
  const text = (name) => fields[name].value.trim();
  const job = { ops: text("ops") ? JSON.parse(text("ops")) : [] };
  if (text("command")) {
    if (job.ops.length) throw new Error("Command and opcodes: fill in one of them.");
    job.ops = [command(fields, argv())];
  }
  if (!job.ops.length) throw new Error("The command is empty.");
  if (text("name")) job.name = text("name");
  if (text("reason")) job.reason = text("reason");
  if (text("priority")) job.priority = Number(text("priority"));
  // Names may have blanks, so that only ids may be parted by them.
  const after = text("after").split(",").flatMap((part) => (/^[\d\s]+$/.test(part) ? part.split(/\s+/) : [part.trim()]));
  if (text("after")) job.depends = await Promise.all(after.filter(Boolean).map(idOf));
  return job;
}

/** The id that this is, or that of the newest job of this name. */
async function idOf(word) {
  if (/^\d{1,15}$/.test(word)) return Number(word);
  const { jobs } = await api("GET", `/2/queue?${new URLSearchParams({ search: word, sort: "-id", limit: 1000 })}`);
  const job = jobs.find((one) => one.name === word);
  if (!job) throw new Error(`After: there is no job called ${word}`);
  return job.id;
}

function command(fields, argv) {
  const op = { OP_ID: "OP_EXEC", argv };
  for (const [level, name, mode] of locksIn(fields.locks.value)) {
    op.locks ??= {};
    ((op.locks[level] ??= {})[mode ?? "exclusive"] ??= []).push(name);
  }
  if (fields.cwd.value.trim()) op.cwd = fields.cwd.value.trim();
  if (fields.timeout.value.trim()) op.timeout = secondsIn(fields.timeout.value);
  return op;
}
