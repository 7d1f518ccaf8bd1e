// The page: log in, choose a view, keep it up to date.

import { api, credentials, follow, logIn, logOut } from "./page_api.js";
import { h, notice } from "./page_parts.js";
import { route } from "./page_state.js";
import { job } from "./page_job.js";
import { jobs } from "./page_jobs.js";
import { locks } from "./page_locks.js";
import { health, rules } from "./page_rules.js";
import { submit } from "./page_submit.js";
import { timeline } from "./page_timeline.js";

const views = { jobs, job, submit, rules, locks, timeline, health };
const TAB_OF = { job: "jobs", submit: "jobs" };
const main = document.getElementById("main");
const live = document.getElementById("live");

let me = null;
let leaving = new AbortController();
let changed = new Set();
let stream = null;
let shown = "";
let queried = null;

/** What a view gets: who asks, what is chosen, how to hear of changes, and when it is left. */
function context(path) {
  return {
    me,
    path,
    query: () => route().query,
    signal: leaving.signal,
    may: (right) => me.rights.includes(right),
    /** Call this if another query of the same view is chosen. */
    whenChosen(work) { queried = work; },
    /** Call this again and again while somebody looks; what fails is tried again. */
    every(seconds, work) {
      const timer = setInterval(() => { if (!document.hidden) work().catch(() => {}); }, seconds * 1000);
      leaving.signal.addEventListener("abort", () => clearInterval(timer));
    },
    /** Call this soon after a change of a job that is wanted, at most twice a second. */
    whenChanged(work, isWanted = () => true) {
      let timer = null;
      const later = () => {
        timer ??= setTimeout(() => {
          timer = null;
          // Somebody copies a part of the text.
          if (getSelection().type === "Range" && main.contains(getSelection().anchorNode)) later();
          else work();
        }, 500);
      };
      changed.add((event) => { if (isWanted(event)) later(); });
      leaving.signal.addEventListener("abort", () => clearTimeout(timer));
    },
  };
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  changed = new Set();
  queried = null;
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
  const { name, path } = route();
  shown = [name, ...path].join("/");
  const view = name === "jobs" && path.length ? "job" : name;
  for (const tab of document.querySelectorAll("#tabs a")) {
    if (tab.hash === `#/${TAB_OF[view] ?? name}`) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  const { signal } = leaving;
  try {
    const found = await (views[view] ?? jobs)(context(path));
    if (signal.aborted) return;
    main.className = view;
    main.replaceChildren(...[found].flat());
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
  const lost = (isLost) => {
    live.textContent = isLost ? "connection lost, trying again" : "live";
    live.className = isLost ? "lost" : "";
  };
  follow("/2/events", (kind, event) => { for (const soon of changed) soon(event); }, stream.signal, lost);
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
    show().then(() => { if (credentials()) main.focus({ preventScroll: true }); });
  };
  main.className = "";
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

function addressChanged() {
  const { name, path } = route();
  if (queried && shown === [name, ...path].join("/")) return queried();
  // A focus scrolls to its element, and the tabs out of view.
  return show().then(() => { main.focus({ preventScroll: true }); scrollTo(0, 0); });
}

document.getElementById("logout").addEventListener("click", leave);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", addressChanged);
addEventListener("unhandledrejection", (event) => notice(event.reason?.message ?? "something went wrong"));
show();
