"""ModelReplica: the objects of one serving instance on one cluster, from the first apply to the last deletion.

`workflow` has signals, queries and one pass of the loop. What it does is in parts (`cluster`, `cache`, `apply`, `pruning`, `teardown`,
`reports`); what it decides is in the pure functions of `decisions`. `template` and `teardown_progress` change the state that they are
given. Parts may get other parts; `context.publish()` is their only call back.
"""
