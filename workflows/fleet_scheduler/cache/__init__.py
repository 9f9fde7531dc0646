"""What the scheduler knows, as one run of its workflow keeps it and carries it to the next.

`scheduler_cache` is the whole: the fleet with its ledger, and `queue` (the requests), `answers` (those already answered), `queueing_hints`
(what happened that may change an answer) and `admission` (replicas that wait for the admission of their cluster). `state` is what is
carried, written by `carry_over`; local activities find the cache in `cache_registry`. Nothing here sends a signal or decides a placement.
"""
