"""The secret store: its Protocol, the choice of a store, and reading from it.

Values leave this package only in API calls. They are never returned to a workflow.
Implementations are in `clients/secrets`.
"""
