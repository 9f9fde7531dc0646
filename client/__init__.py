"""The command line.

Each command is one module of `commands`; `main.py` lists them. Everything here calls Temporal and the secret store, never a cluster. Not
here: what an object is, and whether a manifest is valid (`api_types`, `scheduler`).
"""
