"""How would other orders do?

Plays traces against the scheduler's and the locks' own decisions, in virtual time: pure.

- `replay`: plays a trace. `policies`: under which order. `real_locks`: with the real lock state.
- `bounds`: what no order can beat. `measuring`: how wrong estimates and plans would have been.
"""
