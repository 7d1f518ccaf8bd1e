// Parts that all views use: elements, times in words, notices, questions.

import { now } from "./page_api.js";

export const FINAL = ["canceled", "success", "error"];

/** An element; attributes that are functions are listeners, children may be texts. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false).flatMap(marked));
  return element;
}

// Control characters but tab and newline, signs that turn the direction of writing, and invisible ones.
const HIDDEN = /((?:\r(?!\n)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]))/u;

/** The parts of a text, in which signs that nobody would see, or that hide others, are shown by their numbers. */
export function marked(child) {
  if (typeof child !== "string" || !HIDDEN.test(child)) return [child];
  return child.split(HIDDEN).map((part, place) => (place % 2 === 0 ? part : sign(part)));
}

function sign(hidden) {
  const number = hidden.codePointAt(0).toString(16).padStart(4, "0");
  const element = document.createElement("span");
  element.className = "sign";
  element.title = `The character U+${number.toUpperCase()}`;
  element.textContent = number.length > 4 ? `\\u{${number}}` : `\\u${number}`;
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function s(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** A table; one that is "stacked" shows the cells of a row below each other on a narrow screen. */
export function table(headings, rows, label, kind) {
  const cells = headings.map((one) =>
    h("th", { scope: "col", class: one.kind ?? "", "aria-sort": one.sort }, one.title ?? one));
  return h("div", { class: "scroll" },
    h("table", { "aria-label": label, class: kind }, h("thead", {}, h("tr", {}, cells)), h("tbody", {}, rows)));
}

export function status(word) {
  return h("span", { class: `status ${word}` }, word);
}

/** What happened to a job, or what it does now. */
export function state(job) {
  return status(job.outcome ?? job.status);
}

const keyOf = (element) => element.dataset.key ?? element.getAttribute("href") ?? element.getAttribute("aria-label") ?? element.textContent;

/** Put other children into a box; focus and open details stay where they were. */
export function swap(box, ...children) {
  const focused = box.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  const open = new Set([...box.querySelectorAll("details[open]")].map(keyOf));
  box.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false));
  for (const one of box.querySelectorAll("details")) if (open.has(keyOf(one))) one.open = true;
  if (focused === null) return;
  const found = [...box.querySelectorAll("a, button, input, select, summary")].find((one) => keyOf(one) === focused);
  found?.focus({ preventScroll: true });
}

/** Seconds in words: 0.3 s, 12 s, 3 min 5 s, 2 h 10 min, 3 d 4 h. */
export function span(seconds) {
  if (seconds == null || Number.isNaN(seconds)) return "";
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** A size in words: 812 B, 4.0 KiB, 46 MiB, 1.5 GiB. */
export function bytes(size) {
  const power = size < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(size) / 10));
  const number = size / 1024 ** power;
  return `${number.toFixed(power && number < 10 ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

const two = (number) => String(number).padStart(2, "0");
const dateOf = (then) => `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())}`;
const clockOf = (then) => [then.getHours(), then.getMinutes(), then.getSeconds()].map(two).join(":");

/** The name of the time zone in which the page shows times. */
export const ZONE = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts().find((part) => part.type === "timeZoneName").value;

/** A moment: the time of today, or date and time. */
export function moment(seconds) {
  if (seconds == null) return "";
  const then = new Date(seconds * 1000);
  const isToday = dateOf(then) === dateOf(new Date(now() * 1000));
  return isToday ? clockOf(then) : `${dateOf(then)} ${clockOf(then)}`;
}

/** A moment as an element that tells its date and zone on request, or at once. */
export function when(seconds, isWhole = false) {
  if (seconds == null) return "";
  const then = new Date(seconds * 1000);
  const whole = `${dateOf(then)} ${clockOf(then)} ${ZONE}`;
  const day = then.toLocaleDateString("en", { weekday: "long" });
  return h("time", { datetime: then.toISOString(), title: `${day}, ${whole}` }, isWhole ? whole : moment(seconds));
}

/** How long a job has run; of one that runs it ticks. */
export function elapsed({ started, ended }) {
  if (started == null) return "";
  if (ended != null) return span(ended - started);
  return h("span", { "data-since": started }, span(now() - started));
}

setInterval(() => {
  for (const one of document.querySelectorAll("[data-since]")) one.textContent = span(now() - Number(one.dataset.since));
}, 1000);

export function count(number, one, many = one + "s") {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** A text in which each "job 17" is a link. */
export function linked(text) {
  return text.split(/(\bjobs? \d+(?:(?:, | and )\d+)*)/).flatMap((part, place) => {
    if (place % 2 === 0) return [part];
    return part.split(/(\d+)/).map((piece) => (/^\d+$/.test(piece) ? h("a", { href: `#/jobs/${piece}` }, piece) : piece));
  });
}

let hiding;

/** Show a sentence for some seconds. */
export function notice(text, isGood = false) {
  const box = document.getElementById("notice");
  box.replaceChildren(...marked(text));
  box.className = isGood ? "good" : "";
  box.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { box.hidden = true; }, 6000);
}

/** Ask before something is done; resolves to true, or to the typed text, or to null. */
export function ask(question, action, field) {
  return new Promise((resolve) => {
    const input = field && h("input", { value: field.value ?? "", ...field.more });
    const form = h("form", { method: "dialog", class: "stack" },
      h("p", {}, question),
      input && h("label", {}, field.label, input),
      h("div", { class: "bar" },
        h("button", { value: "yes", class: "strong" }, action),
        h("button", { value: "no", formnovalidate: true }, "Leave it as it is")));
    const dialog = h("dialog", { "aria-label": action }, form);
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes" ? (input ? input.value : true) : null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
