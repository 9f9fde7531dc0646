"""FleetScheduler: the singleton that serialises placement decisions.

`workflow` has signals, queries and the loop. What it knows is in `cache`.

What it does: `inbox` reads messages; `deciding` has requests decided by `decide_activity` and charges the ledger; `outgoing` builds what
`sending` sends; `ledger_audit` recounts the ledger.

What it decided in the past: `recorded_decisions` reads histories of its runs, for the command line.

How it starts: `rebuild` without state, `continue_as_new` with that of the run before.
"""
