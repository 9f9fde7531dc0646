"""How workflows call activities: options by class of work, signals and queries to many entities.

Not here: what is called, and what follows from a result.
"""
