"""FleetScheduler: the singleton that serialises placement decisions.

The package uses four terms. The ledger has an entry for each placed replica, with the
nodes that it uses; a replica with an entry is charged. The account of an entity is its
report of its replicas and versions, for a scheduler that lost its state. An epoch is a
number that each scheduler without carried state draws; messages with a smaller epoch
are outdated. A doubt is a replica about which the ledger and its deployment disagree.

`workflow` has signals, queries and the loop. `cache` holds the fleet and the ledger.
`inbox` reads messages. `calls` sends signals and runs `decide_activity`, and `charging`
records the decisions in the ledger. `outgoing` builds the signals. `ledger_audit`
recounts the ledger. `recorded_decisions` reads past decisions from the histories of its
runs, for the command line.

A run without state starts with `rebuild`, and a later run with the state of the
previous run (`continue_as_new`).
"""
