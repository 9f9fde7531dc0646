"""The state of the scheduler, within one run and from run to run.

`scheduler_cache` contains the fleet with its ledger, `queue` (the requests), `answers`
(the answers so far), `queueing_hints` (changes that may change an answer) and
`admission` (replicas that wait for the admission of their cluster). `carry_over` writes
the carried `state`. Local activities find the cache in `cache_registry`. Code that
sends signals or decides placements does not belong here.
"""
