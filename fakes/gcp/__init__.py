"""A fake Google Cloud for the provisioning of GKE clusters, over gRPC and HTTP.

It records all calls and applies a script of faults. `fake.py` starts it, and
`clients.py` points the official clients at it. `servers` implement the protocols,
`services` the APIs, and `calls` the common parts of every call: tokens, faults and the
ledger. Operations take a number of reads instead of time, so every run of a test makes
the same calls.
"""
