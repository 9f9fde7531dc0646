"""FleetScheduler: the singleton that serialises placement decisions.

`workflow` has signals, queries and the loop; `cache` is what it knows, and `inbox` how each message changes that; `queue` has the
requests, `deciding` has them decided in a local activity and charges the ledger; `outgoing` builds what `sending` sends; `rebuild` starts
without state, `continue_as_new` with that of the run before.
"""
