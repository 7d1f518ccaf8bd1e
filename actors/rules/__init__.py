"""Which filter rule applies to a job?

The component is `FilterEvaluator`; `filtering`, `gating` and `rule_requests` decide.
"""
