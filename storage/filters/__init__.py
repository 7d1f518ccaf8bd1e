"""What do filters and rules say of a job?

The query filter language, and the rules that are written in it. A new predicate of rules is a line
in `predicates.PREDICATES`. A new operator of the language stands in three files: the form in
`filters` (`_FORMS`), what it means in `filter_evaluation`, how people type it in `filter_text`.

- `filters`: the language: operators, and the parsed tree. `filter_text`: the same as typed.
- `filter_evaluation`: whether an object passes. `metering`: what that may cost. `patterns`: regular
  expressions.
- `rules`: stored rules and their actions. `predicates`: at what a rule looks in a job;
  `lock_predicate`: at its locks, which `lock_claims` finds.
"""
