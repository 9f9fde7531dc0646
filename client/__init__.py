"""The command line: what people and scripts do to the fleet.

Each command is one module; `main.py` lists them. Everything here talks to Temporal and to the secret store, never to a cluster. What an
object is, and whether a manifest is right, is decided below: in `api_types` and `scheduler`.
"""
