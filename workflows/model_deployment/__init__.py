"""ModelDeployment: the replica count, rollouts, and the ModelReplicas that it owns.

`workflow` has the signals, the queries and the loop. The parts `adoption`, `cache`,
`placements`, `replicas` and `teardown` do the work. `decisions/` has the pure functions
that decide and that write the status.
"""
