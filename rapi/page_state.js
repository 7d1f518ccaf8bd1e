// The address behind its #: a view, and a query with what is chosen there. A link shows the same.

/** The view, the rest of its path, and the query. */
export function route() {
  const [path, query = ""] = location.hash.slice(2).split("?", 2);
  const [name, ...rest] = path.split("/");
  return { name: name || "jobs", path: rest, query: new URLSearchParams(query) };
}

/** The address of this view with other values in its query; an empty value takes one out. */
export function address(changes) {
  const { name, path, query } = route();
  for (const [key, value] of Object.entries(changes)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  const text = query.toString();
  return `#/${[name, ...path].join("/")}${text && `?${text}`}`;
}

let typing = 0;

/** Note what somebody types: one step of the way back for what is typed without a pause. */
export function note(changes) {
  const isSame = Date.now() - typing < 3000;
  typing = Date.now();
  history[isSame ? "replaceState" : "pushState"](null, "", address(changes));
}
