"""Choose clusters and pools for replicas.

Nothing here waits, reads a clock, or calls out, and nothing imports Temporal or pydantic on the path of a decision: equal input gives
equal bytes, on any worker, in any year. `fleet` is what is known, `decide` is what follows from it, `explain` says why, `plan` asks
what would be.
"""

SCHEDULER_VERSION = "1.0.0"
