// The page: log in, choose a view, keep it up to date.

import { api, credentials, follow, logIn, logOut } from "./page_api.js";
import { h, notice } from "./page_parts.js";
import { job, jobs } from "./page_jobs.js";
import { health, rules } from "./page_rules.js";
import { locks, timeline } from "./page_charts.js";

const views = { jobs, job, rules, locks, timeline, health };
const main = document.getElementById("main");
const live = document.getElementById("live");

let me = null;
let leaving = new AbortController();
let changed = new Set();
let stream = null;

/** What a view gets: who asks, how to hear of changes, and when it is left. */
function context(path) {
  return {
    me,
    path,
    signal: leaving.signal,
    may: (right) => me.rights.includes(right),
    /** Call this soon after a change of any job, at most twice a second. */
    whenChanged(work) {
      let timer = null;
      const soon = () => { timer ??= setTimeout(() => { timer = null; work(); }, 500); };
      changed.add(soon);
      leaving.signal.addEventListener("abort", () => clearTimeout(timer));
    },
  };
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  changed = new Set();
  if (!credentials()) return showLogin();
  try {
    me ??= await api("GET", "/2/me");
  } catch (error) {
    if (error.code === 401) return showLogin("This name and password are not known.");
    main.replaceChildren(h("p", {}, `${error.message} `, h("button", { click: show }, "Try again")));
    return;
  }
  document.getElementById("top").hidden = false;
  document.getElementById("who").textContent = me.name;
  listen();
  const [name, ...path] = location.hash.slice(2).split("/");
  const view = name === "jobs" && path.length ? "job" : name || "jobs";
  for (const tab of document.querySelectorAll("#tabs a")) {
    const isHere = tab.hash === `#/${name || "jobs"}`;
    if (isHere) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  const { signal } = leaving;
  try {
    const shown = await (views[view] ?? jobs)(context(path));
    if (signal.aborted) return;
    main.replaceChildren(...[shown].flat());
    document.title = `${main.querySelector("h1")?.textContent ?? view} - Ganger`;
  } catch (error) {
    if (signal.aborted) return;
    if (error.code === 401) return leave();
    main.replaceChildren(h("h1", {}, view), h("p", {}, error.message), h("button", { click: show }, "Try again"));
  }
}

function listen() {
  if (stream) return;
  stream = new AbortController();
  const lost = (isLost) => { live.textContent = isLost ? "connection lost, trying again" : "live"; };
  follow("/2/events", () => { for (const soon of changed) soon(); }, stream.signal, lost);
}

function showLogin(problem = "") {
  logOut();
  me = null;
  stream?.abort();
  stream = null;
  document.getElementById("top").hidden = true;
  const name = h("input", { name: "name", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const send = (event) => {
    event.preventDefault();
    logIn(name.value, password.value);
    show();
  };
  main.replaceChildren(h("div", { class: "login panel" },
    h("h1", {}, "Ganger"),
    problem && h("p", { role: "alert" }, problem),
    h("form", { class: "stack", submit: send },
      h("label", {}, "Name", name),
      h("label", {}, "Password", password),
      h("button", { class: "strong" }, "Log in"))));
  name.focus();
}

function leave() {
  logOut();
  showLogin();
}

document.getElementById("logout").addEventListener("click", leave);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
// A focus scrolls to its element, and the tabs out of view.
addEventListener("hashchange", () => { show().then(() => { main.focus({ preventScroll: true }); scrollTo(0, 0); }); });
addEventListener("unhandledrejection", (event) => notice(event.reason?.message ?? "something went wrong"));
show();
