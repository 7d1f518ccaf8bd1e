"""How programs come in over HTTP. Imports transport and storage, never actors.

A process of its own, and a client of the daemon like any other; `RapiKeeper` of
`actors.supervision` starts it (docs/decisions/starlette-on-uvicorn-behind-a-gate.md). A request
comes through TLS to the `guards`, which count connections and set deadlines and limits in front of
uvicorn's protocol. Then `application` finds the resource, checks user, rights, parameters and body,
and calls the resource's handler, which asks the daemon by an `AsyncClient`.

`declarations` says how resources are declared, `table` has all of them: routes, rights and the
OpenAPI document follow from it. `problems` makes Ganeti's error bodies. `authentication`, `logins`,
`users_file`, `roles` and `scopes` say who asks, and what he may do. Each noun's resources are a
file (`jobs`, `filters`, ...; those for Ganeti's clients in `ganeti/`). `feed`, `events`, `timeline`
and `metrics` share one watch of all jobs, for all who listen or count. `page` and the files beside
it are the page for browsers.
"""
