"""FleetScheduler: the singleton that serialises placement decisions.

`workflow` has signals, queries and the loop; `cache` is what it knows, and how each message changes that; `outgoing` builds what it
sends; `decide_activity` is where it calls `scheduler.decide`.
"""
