"""FleetScheduler: the singleton that serialises placement decisions.

`workflow` has signals, queries and the loop.

What it knows: `state` is carried from run to run; `cache` adds the fleet with its ledger; `queue` has the requests, `answers` those already
answered, `queueing_hints` what happened that may change an answer, `admission` the replicas that wait for the admission of their cluster.

What it does: `inbox` reads messages; `deciding` has requests decided by `decide_activity` and charges the ledger; `outgoing` builds what
`sending` sends; `ledger_audit` recounts the ledger.

How it starts: `rebuild` without state, `continue_as_new` with that of the run before, written by `carry_over` with `packing`.
"""
