"""The current state of all objects in memory, for reads.

Workflows publish their changes to Temporal's visibility store, and this package follows
them.
"""
