"""The command line.

Each command is one module of `commands`; `main.py` lists them. Only the entry point and tests
import this package. Not here: the connection to Temporal or the front (`fleet_client`), and
whether a manifest is valid (`api_types`, `scheduler`).
"""
