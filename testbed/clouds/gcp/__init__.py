"""A fake Google Cloud: what provisioning of GKE clusters calls, over gRPC and HTTP, with a record of all calls and a script of faults.

`fake.py` starts it, `clients.py` points the official clients at it. `servers` speak the protocols, `services` hold what the APIs do,
`calls` hold what is equal for every call: tokens, faults, the ledger. Nothing here runs by a clock: whatever takes time at Google takes a
number of reads here, so a test gives the same calls each time.
"""
