"""ModelReplica: the objects of one serving instance on one cluster, from the first apply to the last deletion.

`workflow` has signals, queries and one pass of the loop. What it does is in parts (`cluster`, `cache`, `apply`, `copies_wait`, `pruning`,
`teardown`, `reports`); what it decides is in the pure functions of `decisions`, and how messages and results change its state, in those of
`reducers`. Parts may get other parts; `context.publish()` is their only call back.
"""
