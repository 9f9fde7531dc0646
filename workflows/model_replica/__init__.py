"""ModelReplica: the objects of one serving instance on one cluster, from the first apply to the last deletion.

`workflow` has signals, queries and one pass of the loop. What it does lives in parts (`cluster`, `cache`, `apply`, `pruning`, `teardown`,
`reports`); what it decides lives in pure functions (`plan`, `teardown_plan`, `readings`, `verdicts`, `status`, `orders`).
"""
