"""ModelReplica: the objects of one replica on one cluster, from the first apply to deletion.

`workflow` has signals, queries and one pass of the loop. The parts `cluster`, `cache`,
`apply`, `copies_wait`, `pruning`, `teardown` and `reports` do the work. The pure
functions of `decisions` decide, and the functions of `reducers` apply messages and
results to the state. A part may use other parts; its only callback into the workflow is
`context.publish()`.
"""
