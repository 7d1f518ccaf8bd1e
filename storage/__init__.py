"""What is true, and what is on disk? Imports nothing else of Ganger.

What belongs to one matter is in its room. Beside the rooms:

- `errors`: every error, by who must act. `settings`: limits that several files share.
- `config_files`, `config_log`, `config_history`: the configuration on disk: ``config.data``, the
  changes in the log, and who made them.
- `entry_points`: what packages add. `version`: of this distribution.
- `plain_values`, `natural_order`, `wording`, `query_views`, `request_keys`: small things that many
  use.
"""
