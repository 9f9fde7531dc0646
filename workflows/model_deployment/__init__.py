"""ModelDeployment: wanted replicas, rollout, and the ModelReplicas it owns.

`workflow` has signals, queries and the loop. Its parts `adoption`, `cache`, `placements`, `replicas` and `teardown` do the work, and may
get other parts; `context.publish()` is their only call back. What they decide and show is in the functions of `plan`, `template`,
`scaling`, `revisions` and `status`.
"""
