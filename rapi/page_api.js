// Talks to the remote API: requests, and streams of events that go on after a loss of the connection.

const KEY = "ganger-credentials";

export class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** The header that says who asks; null before the login. */
export function credentials() {
  return sessionStorage.getItem(KEY);
}

export function logIn(name, password) {
  const bytes = new TextEncoder().encode(`${name}:${password}`);
  sessionStorage.setItem(KEY, "Basic " + btoa(String.fromCharCode(...bytes)));
}

export function logOut() {
  sessionStorage.removeItem(KEY);
}

function headers(more = {}) {
  // The server does not let the browser ask for a password if a script sends the request.
  return { Authorization: credentials() ?? "", "X-Requested-With": "ganger", ...more };
}

let ahead = 0;

/** The time in seconds since the epoch, by the server's clock if the browser's is far from it. */
export function now() {
  return Date.now() / 1000 + ahead;
}

function lookAtClock(response) {
  const told = Date.parse(response.headers.get("Date") ?? "") / 1000;
  if (told) ahead = Math.abs(told - Date.now() / 1000) > 3 ? told - Date.now() / 1000 : 0;
}

// Messages of errors come with HTML's entities, as Ganeti's do.
function plainText(text) {
  return new DOMParser().parseFromString(text, "text/html").documentElement.textContent;
}

async function failure(response) {
  try {
    const body = await response.json();
    return new ApiError(response.status, plainText(body.message));
  } catch {
    return new ApiError(response.status, `the server answered with ${response.status}`);
  }
}

/** Make a request; the answer's JSON, or an ApiError. */
export async function api(method, path, body) {
  const options = { method, headers: headers() };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  if (method === "POST") {
    options.headers["Idempotency-Key"] = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new ApiError(0, "the server cannot be reached");
  }
  lookAtClock(response);
  if (!response.ok) throw await failure(response);
  return response.json();
}

/** Follow a stream of events until `signal` aborts, or `heard` returns false. */
export async function follow(path, heard, signal, lost = () => {}) {
  let last = "";
  while (!signal.aborted) {
    try {
      const more = last ? { "Last-Event-ID": last } : {};
      const response = await fetch(path, { headers: headers(more), signal });
      if (!response.ok) throw await failure(response);
      lost(false);
      for await (const event of eventsIn(response.body)) {
        if (event.id) last = event.id;
        if (heard(event.kind, JSON.parse(event.data)) === false) return;
      }
    } catch (error) {
      if (signal.aborted || error.code === 401 || error.code === 403 || error.code === 404) return;
    }
    lost(true);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function* eventsIn(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = { kind: "message", data: "", id: "" };
      for (const line of block.split("\n")) {
        const [name, text] = [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)];
        if (name === "event") event.kind = text;
        else if (name === "data") event.data += text;
        else if (name === "id") event.id = text;
      }
      if (event.data) yield event;
    }
  }
}
