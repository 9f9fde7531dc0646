"""A fleet written down: packed for another process or the next run of the scheduler, and the digest of what a decision was made from.

Not here: what is known itself, which none of these modules changes but to restore it.
"""
