"""The output of commands: tables, machine-readable formats, progress, plans as text.

Not here: error messages (`failures`), and the choice of what a command prints
(`commands`). May import `planning` and `fleet_client`.
"""
