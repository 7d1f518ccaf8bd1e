"""Which filter rule applies to a job?

`FilterEvaluator` judges pending jobs. The queue itself enforces rules at admission and before each
opcode (`rules_in_force`). So a new rule reaches a job that runs like this: `config.filter_rules`
stores it and tells the evaluator (`RulesChanged`); the evaluator compiles it and tells scheduler
and queue (`RuleChainChanged`); `store.start_gate.change_chain` tells each job's process by way of
the executor (`GateChanged`); `JobActor._receive` notes the doubt, and the process asks the gate
again while it waits for locks. Otherwise it hears of the rule in the reply to the record of its
next start. Without an answer it reads the stored rules.

- `filter_evaluator`: the component. `filtering`: which rule applies. Pure. `shared_verdicts`: one
  verdict for jobs of a class. `verdicts`: what a chain has to see, and verdicts as messages. Pure.
  `known_facts`: what of a job the rules see. `what_if_rules`: tests of rules and simulations.
  `long_judgements`: a job that takes several slices. `unsure_locks`: jobs whose locks the
  configuration decides.
- `rules_in_force`: the rules that the queue enforces. `gating`: whether an opcode may start. Pure.
  `stored_rules`: the gate when nobody answers, or the state is large.
- `rule_requests`: makes rules of requests, and rows of rules. Pure.
"""
