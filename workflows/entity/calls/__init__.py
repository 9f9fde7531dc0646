"""How workflows call activities: options by class of work, and batched calls.

Signals and queries to many entities belong here. The decision what to call, and the use
of the results, do not.
"""
