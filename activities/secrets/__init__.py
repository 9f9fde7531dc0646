"""The secret store: its protocol, which implementation the settings select, and credentials read from it.

Values leave this package only towards an API call; they are never returned to a workflow.
"""
