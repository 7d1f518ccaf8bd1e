"""Who may come in: keys, users and certificates?

- `endpoints`: where listeners may be. `keys`: the remote listener's keys. `submitters`: the name of
  who submits, from credentials.
- `rapi_users`: the remote API's users. `rapi_passwords`: their secrets. `rapi_certificates`: its
  certificates. `rapi_settings`: its limits and defaults.
"""
