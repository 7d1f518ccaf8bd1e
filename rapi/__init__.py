"""How do programs and browsers come in over HTTP? Imports transport and storage, never actors.

A process of its own, and a client of the daemon like any other; `RapiKeeper` of
`actors.supervision` starts it (docs/decisions/starlette-on-uvicorn-behind-a-gate.md). A request
comes through TLS to the `guards`, which count connections and set deadlines and limits in front of
uvicorn's protocol. Then `application` finds the resource, checks user, rights, parameters and body,
and calls the resource's handler, which asks the daemon by an `AsyncClient`.

- `process`: the program. `notes`: what it says to its daemon. `serving`, `guards`, `uvicorn_hooks`:
  connections. `certificate`: the file that TLS needs.
- `application`, `declarations` (how resources are declared) and `table` (all of them): routes,
  rights and the document of `openapi` follow from these. `bodies`: values of a request. `problems`:
  Ganeti's error bodies.
- Who asks, and what he may do: `authentication`, `logins`, `users_file`, `roles`, `scopes`; `hosts`
  and `origins` (which names and pages); `views` (what he sees of jobs).
- Resources, by noun: `jobs`, `filters`, `limits`, `health`, `explanations`, `metrics`; for people
  `queue_views` (with `job_lists`, `chains`, `opcode_names`), `lock_views`, `rule_views`;
  those for Ganeti's clients are in `ganeti/`. `rows`: resources that read queries. `job_listing`
  and `job_bodies`: answers that are kept as bytes.
- `feed`, `events`, `event_streams`, `timeline` and `metrics` share one watch of all jobs, for all
  who listen or count.
- `page` and the files beside it are the page for browsers.
"""
