"""The secret store: its Protocol, the implementation that the settings select, and reading credentials and copies from it.

Values leave this package only towards an API call; they are never returned to a workflow. Implementations are in `clients/secrets`.
"""
